//! What is read as what, and what is refused.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

fn json_of(text: &str) -> serde_json::Value {
    match Tree::parse(text.as_bytes()) {
        Ok(tree) => tree.top().to_json(),
        Err(fault) => panic!("{text:?}: {} {}", fault.field, fault.message),
    }
}

/// `LINE:COLUMN: KEY: MESSAGE` of what is wrong.
fn fault_of(text: &str) -> String {
    let Err(fault) = Tree::parse(text.as_bytes()) else { panic!("{text:?} was read") };
    let place = fault.place.map_or("-".into(), |place| format!("{}:{}", place.line, place.column));
    format!("{place}: {}: {}", fault.field, fault.message)
}

#[test]
fn scalars_are_those_of_yaml_1_2() {
    let text = "\u{feff}a: 1\nb: -2.50\nc: yes\nd: true\ne: ~\nf:\ng: 0755\nh: 1_000\ni: .inf\nj: '5'\nk: !!str 5\nl: 08:00\nm: 2024-01-01\n1: x\n";
    assert_eq!(
        json_of(text),
        json!({"a": 1, "b": -2.5, "c": "yes", "d": true, "e": null, "f": null, "g": "0755", "h": "1_000",
            "i": ".inf", "j": "5", "k": "5", "l": "08:00", "m": "2024-01-01", "1": "x"})
    );
}

#[test]
fn aliases_and_merges_are_followed() {
    let text = "base: &b {a: 1, b: [x]}\nsame: *b\nmore:\n  <<: *b\n  a: 2\n";
    assert_eq!(
        json_of(text),
        json!({"base": {"a": 1, "b": ["x"]}, "same": {"a": 1, "b": ["x"]}, "more": {"a": 2, "b": ["x"]}})
    );
}

#[test]
fn every_value_knows_where_it_stands_and_how_it_is_written() {
    let tree = Tree::parse("ä: 1.10\nlist:\n  - {k: 'v'}\n  - *x\n".replace("*x", "007").as_bytes())
        .map_err(|fault| fault.message)
        .map(|tree| {
            let Value::Object(pairs) = tree.top().value() else { panic!() };
            let places: Vec<_> = pairs
                .iter()
                .map(|(key, node)| {
                    (key.place.map(|p| (p.line, p.column)), node.place().line, node.place().column)
                })
                .collect();
            (places, pairs[0].1.source().to_owned())
        });
    assert_eq!(tree, Ok((vec![(Some((1, 1)), 1, 4), (Some((2, 1)), 3, 3)], "1.10".into())));
}

#[test]
fn a_fault_of_the_syntax_has_its_place_and_says_what_would_be_right() {
    for (text, fault) in [
        ("", "1:1: : the file is empty"),
        ("# nothing\n---\n", "1:1: : the file is empty"),
        ("a: 1\nb: 2\na: 3", "3:1: a: stands here a second time"),
        ("a:\n  - b: {c: 1, c: 2}", "2:15: c: stands here a second time"),
        (
            "use: It is: so",
            "1:11: : mapping values are not allowed in this context (a text with \": \" in it stands in quotes",
        ),
        (
            "a:\n\tb: 1",
            "2:2: : tabs disallowed within this context (block indentation) (YAML is indented with spaces",
        ),
        (
            "a: @x",
            "1:4: : unexpected character: `@' (a text that begins with this character stands in quotes)",
        ),
        ("a: !run x", "1:9: : the tag !run has no meaning here"),
        ("a: 1\n---\nb: 1", "3:1: : a second document begins here"),
        ("a: *b", "1:4: : this alias (`*name`) has no anchor"),
        ("a: &a [*a]", "1:8: : this alias stands for what it is a part of"),
        ("? [a]\n: 1", "1:3: : a key must be a text"),
        ("~: 1", "1:1: : a key must be a text"),
        ("a: [1, 2", "1:4: : unclosed bracket '['"),
    ] {
        let found = fault_of(text);
        assert!(found.starts_with(fault), "{text:?}: {found}");
    }
    let Err(latin) = Tree::parse(b"a: caf\xe9") else { panic!() };
    assert_eq!(latin.place.map(|place| place.column), Some(7));
}

#[test]
fn what_is_built_to_cost_is_refused_in_no_time() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for n in 1..20 {
        let before = vec![format!("*a{}", n - 1); 9].join(",");
        let _ = writeln!(bomb, "a{n}: &a{n} [{before}]");
    }
    let stairs: String = (0..300).map(|n| " ".repeat(n) + "a:\n").collect();
    let keys: String = (0..12_000).map(|n| format!("k{n}: 1\n")).collect();
    let long = "x".repeat(200_000);
    for (text, why) in [
        (bomb, "more than 10000 values"),
        (format!("a: &a \"{long}\\n\"\nb: [{}]", "*a,".repeat(15_000)), "aliases (`*name`) multiply"),
        ("[".repeat(250_000), "1:65: : values are nested deeper than 64"),
        ("{a: ".repeat(60_000), "1:257: : values are nested deeper than 64"),
        ("- ".repeat(120_000), "values are nested deeper than 64"),
        ("? ".repeat(120_000), "values are nested deeper than 64"),
        (stairs, "65:65: : values are nested deeper than 64"),
        ("- a\n".repeat(60_000), "more than 10000 values"),
        (keys, "more than 10000 values"),
        ("a: b\n".repeat(50_000), "2:1: a: stands here a second time"),
        ("\"".repeat(250_000), ""),
        ("&a ".repeat(80_000), ""),
        ("%A b\n".repeat(50_000), ""),
        ("\n".repeat(250_000) + "]", ""),
    ] {
        let start = Instant::now();
        let found = fault_of(&text);
        assert!(found.contains(why), "{:.40}: {found}", text.replace('\n', "/"));
        assert!(start.elapsed() < Duration::from_secs(1), "{:.40}: {:?}", text, start.elapsed());
    }
}
