//! How methods are called.

use super::*;

#[tokio::test]
async fn a_method_is_called_in_the_style_that_it_is_written_in() {
    let folder = Folder::new(
        r#"
from base.BasePlugin import BasePlugin
from core.coreInterface import CoreInterface

class Weather(BasePlugin):
    def __init__(self, coreInst: CoreInterface):
        super().__init__(coreInst=coreInst)

    async def by_name(self, city, unit="C"):
        return f"{city} {unit} {self.config['key']} {self.promptRequest.request_metadata}"

    def by_name_in_a_thread(self, city, **others):
        return f"{city} {others}"

    async def by_config(self):
        return f"{self.config.get('city')} {self.config.get('unit')} {self.config['key']}"

    def by_both(self, city):
        return f"{city} {self.config.get('unit')}"

    async def with_its_own_argument(self, params=None):
        return f"{params} {self.promptRequest.request_metadata['capability_parameters']}"
"#,
    )
    .with("by_name", &["city", "unit"])
    .with("by_name_in_a_thread", &["city"])
    .with("by_config", &["city", "unit"])
    .with("by_both", &["city", "unit"])
    .with("with_its_own_argument", &["city"])
    .with("By-Config", &["city"]);
    folder.write("config.yml", "key: secret\ncity: Nowhere\n");
    let python = folder.start().await;
    let given = json!({"city": "Bern"});
    let metadata = "{'capability_id': 'by_name', 'capability_parameters': {'city': 'Bern'}}";
    assert_eq!(python.text("by_name", given.clone()).await, format!("Bern C secret {metadata}"));
    assert_eq!(python.text("by_name_in_a_thread", json!({"city": "Bern", "x": 1})).await, "Bern {'x': 1}");
    assert_eq!(python.text("by_config", json!({"city": "Bern", "unit": "F"})).await, "Bern F secret");
    assert_eq!(
        python.text("by_config", json!({})).await,
        "Nowhere None secret",
        "one call's are not the next's"
    );
    assert_eq!(python.text("by_both", json!({"city": "Bern", "unit": "F"})).await, "Bern F");
    assert_eq!(python.text("with_its_own_argument", given.clone()).await, "None {'city': 'Bern'}");
    assert_eq!(python.text("By-Config", given).await, "Bern None secret");
    assert_eq!(python.error("no_such").await, "Weather has no method no_such and no run()");
    python.close().await;
    assert_eq!(python.ended().await, Some(Exit::CLEAN));
}

#[tokio::test]
async fn run_finds_what_it_is_asked_in_the_plugin() {
    let folder = Folder::new(
        r#"
from base.base import PluginResult, PromptRequest
from base.BasePlugin import BasePlugin

class Weather(BasePlugin):
    async def run(self):
        request = self.promptRequest
        assert isinstance(request, PromptRequest) and request.text == self.user_input
        whose = f"{request.user_id} {request.channelType} {request.request_metadata}"
        return PluginResult(text=f"{self.user_input}: {whose}", metadata={"n": 1})
"#,
    );
    let python = folder.start().await;
    let given = json!({"user_input": "hello", "user_id": "u", "channel_type": "EMAIL", "metadata": {"a": 1}});
    let reply = python.call(&asked(None, given), PATIENCE).await;
    assert_eq!(reply.text, "hello: u ChannelType.Email {'a': 1}");
    assert_eq!(Value::from(reply.metadata.unwrap()), json!({"n": 1}));
    // Its capabilities may be told apart in run().
    assert!(python.text("fetch", json!({})).await.contains("'capability_id': 'fetch'"));
}

#[tokio::test]
async fn calls_by_keyword_run_side_by_side_and_others_take_turns() {
    let source = RENDEZVOUS.to_owned()
        + r#"
class Weather(BasePlugin):
    inside = 0

    def in_thread(self, name, other):
        here(name)
        until(other)
        return f"{name} {self.user_input}"

    async def in_loop(self, name, other):
        here(name)
        await comes(other)
        return f"{name} {self.config['city']}"

    async def by_config(self):
        type(self).inside += 1
        city = self.config["city"]
        await asyncio.sleep(0.01)
        seen = (type(self).inside, city == self.config["city"], await asyncio.get_running_loop().run_in_executor(None, lambda: self.config["city"] == city))
        type(self).inside -= 1
        return str(seen)

    async def held(self):
        here("held")
        await comes("release")
        return self.config["city"]

    async def beside(self, other="x"):
        return self.config["city"]
"#;
    let folder = Folder::new(&source)
        .with("in_thread", &["name", "other"])
        .with("in_loop", &["name", "other"])
        .with("by_config", &["city"])
        .with("held", &["city"])
        .with("beside", &["other"]);
    folder.write("config.yml", "city: Nowhere\n");
    let python = folder.start().await;
    let both = async |capability: &str| {
        tokio::join!(
            python.text(capability, json!({"name": "a", "other": "b", "user_input": "A"})),
            python.text(capability, json!({"name": "b", "other": "a", "user_input": "B"})),
        )
    };
    assert_eq!(both("in_thread").await, ("a A".into(), "b B".into()));
    assert_eq!(both("in_loop").await, ("a Nowhere".into(), "b Nowhere".into()));
    let many = (0..20).map(|n| python.text("by_config", json!({"city": n.to_string()})));
    for seen in futures_util::future::join_all(many).await {
        assert_eq!(seen, "(1, True, True)");
    }
    let held = python.text("held", json!({"city": "Bern"}));
    let beside = async {
        eventually("it is held", async || folder.path().join("held").exists()).await;
        let city = python.text("beside", json!({"other": "y"})).await;
        folder.write("release", "");
        city
    };
    assert_eq!(tokio::join!(held, beside), ("Bern".into(), "Nowhere".into()));
}
