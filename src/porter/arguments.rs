//! The arguments of a call against the parameters that a capability declares: every fault is found before
//! the plugin is asked. HomeClaw, "Plugin Registration" §3.3. Called by `toolbox`.

use serde_json::{Map, Value};

use crate::mcp::excerpt;
use crate::model::porter::{Kind, Parameter};

/// So many faults are told of one call.
const MOST_TOLD: usize = 20;

/// The arguments with their defaults, or all that is wrong with them. A default takes the place of whatever
/// is not given, also of a required parameter. `null` is as good as not given; nothing is turned from one
/// type into another; what is not declared passes.
pub(super) fn check(
    parameters: &[Parameter], mut arguments: Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let (mut missing, mut faults) = (Vec::new(), Vec::new());
    for parameter in parameters {
        let name = &parameter.name;
        if arguments.get(name).is_some_and(Value::is_null) {
            arguments.remove(name);
        }
        match (arguments.get(name), &parameter.default) {
            (Some(value), _) if is_a(value, parameter.kind) => {}
            (Some(value), _) => {
                faults.push(format!("{name:?} must be {}, and is {}", called(parameter.kind), shown(value)));
            }
            (None, Some(default)) => {
                arguments.insert(name.clone(), default.clone());
            }
            (None, None) if parameter.required => {
                missing.push(format!("{name:?} ({})", called(parameter.kind)));
            }
            (None, None) => {}
        }
    }
    if !missing.is_empty() {
        faults.insert(0, format!("missing: {}", missing.join(", ")));
    }
    if faults.is_empty() {
        return Ok(arguments);
    }
    let untold = faults.len().saturating_sub(MOST_TOLD);
    faults.truncate(MOST_TOLD);
    if untold > 0 {
        faults.push(format!("and {untold} more faults"));
    }
    Err(faults.join("; "))
}

fn is_a(value: &Value, kind: Kind) -> bool {
    match kind {
        Kind::String => value.is_string(),
        Kind::Number => value.is_number(),
        // As JSON Schema has it: 3.0 is an integer.
        Kind::Integer => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        Kind::Boolean => value.is_boolean(),
        Kind::Object => value.is_object(),
        Kind::Array => value.is_array(),
    }
}

fn called(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "a string",
        Kind::Number => "a number",
        Kind::Integer => "an integer",
        Kind::Boolean => "a boolean",
        Kind::Object => "an object",
        Kind::Array => "an array",
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(value) => format!("the string {:?}", excerpt(value.as_bytes())),
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parameter(name: &str, kind: Kind, required: bool, default: Option<Value>) -> Parameter {
        Parameter { name: name.into(), kind, required, default, description: None, rest: Map::new() }
    }

    fn checked(parameters: &[Parameter], arguments: Value) -> Result<Value, String> {
        check(parameters, arguments.as_object().unwrap().clone()).map(Value::Object)
    }

    #[test]
    fn defaults_are_applied_and_what_is_not_declared_passes() {
        let parameters = [
            parameter("City", Kind::String, true, None),
            parameter("days", Kind::Integer, false, Some(json!(3))),
            parameter("unit", Kind::String, true, Some(json!("C"))),
            parameter("district", Kind::String, false, None),
        ];
        assert_eq!(
            checked(&parameters, json!({"City": "Bern", "city": 1, "district": null})),
            Ok(json!({"City": "Bern", "city": 1, "days": 3, "unit": "C"}))
        );
        let given = json!({"City": "", "days": 5, "unit": "F", "district": "x"});
        assert_eq!(checked(&parameters, given.clone()), Ok(given));
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let parameters = [
            parameter("city", Kind::String, true, None),
            parameter("days", Kind::Integer, false, Some(json!(3))),
            parameter("unit", Kind::String, true, None),
        ];
        let wrong = checked(&parameters, json!({"days": "3", "unit": null})).unwrap_err();
        assert_eq!(
            wrong,
            r#"missing: "city" (a string), "unit" (a string); "days" must be an integer, and is the string "3""#
        );
        let many: Vec<Parameter> =
            (0..50).map(|n| parameter(&format!("p{n}"), Kind::Object, false, None)).collect();
        let all = many.iter().map(|parameter| (parameter.name.clone(), json!(1))).collect();
        assert!(check(&many, all).unwrap_err().ends_with("and 30 more faults"));
    }

    #[test]
    fn nothing_is_turned_into_another_type() {
        let samples = [
            json!("1"),
            json!(1),
            json!(1.5),
            json!(2.0),
            json!(true),
            json!({}),
            json!([]),
            json!(u64::MAX),
        ];
        let fitting = |kind| {
            let fits = |(at, value): (usize, &Value)| is_a(value, kind).then_some(at);
            samples.iter().enumerate().filter_map(fits).collect::<Vec<_>>()
        };
        assert_eq!(fitting(Kind::String), [0]);
        assert_eq!(fitting(Kind::Number), [1, 2, 3, 7]);
        assert_eq!(fitting(Kind::Integer), [1, 3, 7]);
        assert_eq!(fitting(Kind::Boolean), [4]);
        assert_eq!(fitting(Kind::Object), [5]);
        assert_eq!(fitting(Kind::Array), [6]);
    }
}
