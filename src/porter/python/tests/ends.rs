//! How calls end, and how the process does.

use super::*;

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_cancelled() {
    let source = RENDEZVOUS.to_owned()
        + r#"
class Weather(BasePlugin):
    async def waits(self, forever):
        here("waits")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            here("cancelled")
            raise

    async def run(self):
        await asyncio.sleep(1000 if self.user_input else 0)
        return "done"

    async def hello(self, name):
        return name
"#;
    let folder = Folder::new(&source).with("waits", &["forever"]).with("hello", &["name"]);
    let python = folder.start().await;
    {
        let waits = asked(Some("waits"), json!({"forever": "x"}));
        let call = python.call(&waits, PATIENCE);
        let begun = eventually("it has begun", async || folder.path().join("waits").exists());
        tokio::select! { _ = call => panic!("it ended"), () = begun => {} }
    }
    eventually("it is cancelled", async || folder.path().join("cancelled").exists()).await;
    // One that is given up makes place for the next.
    let late = python.call(&asked(None, json!({"user_input": "x"})), Duration::from_millis(50)).await;
    assert!(late.error.unwrap().contains("did not answer within 0.05 s"));
    assert_eq!(python.call(&asked(None, json!({"user_input": ""})), PATIENCE).await.text, "done");
    assert_eq!(python.text("hello", json!({"name": "x"})).await, "x");
    assert_eq!(python.health().await, Ok(()));
}

#[tokio::test]
async fn a_hang_is_told_with_its_place_and_does_not_hold_up_the_others() {
    let source = RENDEZVOUS.to_owned()
        + r#"
class Weather(BasePlugin):
    def hangs(self):
        until("release")
        return "late"

    def hangs_by_name(self, x):
        until("never")

    async def holds_up(self, x):
        until("released too")

    def hello(self, name):
        return name
"#;
    let folder = Folder::new(&source)
        .with("hangs", &["city"])
        .with("hangs_by_name", &["x"])
        .with("holds_up", &["x"])
        .with("hello", &["name"]);
    let python = folder.start().await;
    let brief = Duration::from_millis(50);
    let given_up = async |capability, arguments| {
        let reply = python.call(&asked(Some(capability), arguments), brief).await;
        assert!(reply.error.as_deref().unwrap().contains("did not answer"), "{reply:?}");
    };
    given_up("hangs_by_name", json!({"x": "1"})).await;
    given_up("hangs", json!({"city": "Bern"})).await;
    assert_eq!(python.text("hello", json!({"name": "x"})).await, "x");
    let hung = python.health().await.unwrap_err();
    assert!(hung.contains("a call of hangs still runs in plugin.py:") && hung.contains("in until"), "{hung}");
    folder.write("release", "");
    eventually("it is well again", async || python.health().await.is_ok()).await;
    given_up("holds_up", json!({"x": "1"})).await;
    let hung = python.health().await.unwrap_err();
    assert!(hung.contains("its event loop is held up at plugin.py:"), "{hung}");
    folder.write("released too", "");
    eventually("it is well again", async || python.health().await.is_ok()).await;
    for _ in 0..7 {
        given_up("hangs_by_name", json!({"x": "1"})).await;
    }
    let hung = python.health().await.unwrap_err();
    assert!(hung.contains("8 calls still run"), "{hung}");
    // As good as dead.
    assert_eq!(timeout(PATIENCE, python.ended()).await, Ok(Some(Exit::Signal(libc::SIGKILL))));
}

#[tokio::test]
async fn an_exit_of_a_method_is_the_calls_and_a_crash_is_the_processs() {
    let source = RENDEZVOUS.to_owned()
        + r#"
class Weather(BasePlugin):
    async def raises(self):
        raise KeyError("city")

    def exits(self):
        sys.exit(4)

    async def exits_in_the_loop(self):
        sys.exit(5)

    async def leaves_one_that_exits(self):
        async def later():
            raise SystemExit(6)
        asyncio.ensure_future(later())
        await asyncio.sleep(0)
        return "left"

    def closes(self):
        os.closerange(3, 50)

    def ends(self):
        os._exit(3)

    def dies(self):
        os.kill(os.getpid(), signal.SIGSEGV)
"#;
    let names = ["raises", "exits", "exits_in_the_loop", "leaves_one_that_exits", "closes", "ends", "dies"];
    let folder = names.iter().fold(Folder::new(&source), |folder, name| folder.with(name, &[]));
    let python = folder.start().await;
    assert_eq!(python.error("raises").await, "KeyError: 'city'");
    assert_eq!(python.error("exits").await, "SystemExit: 4");
    assert_eq!(python.error("exits_in_the_loop").await, "SystemExit: 5");
    assert_eq!(python.text("leaves_one_that_exits", json!({})).await, "left");
    assert_eq!(python.error("exits").await, "SystemExit: 4");
    assert_eq!(python.error("ends").await, "the plugin's process exited with code 3 during the call");
    assert_eq!(python.ended().await, Some(Exit::Code(3)));
    assert!(python.health().await.unwrap_err().contains("exited with code 3"));
    assert!(python.error("raises").await.contains("exited with code 3"));
    let python = folder.start().await;
    assert_eq!(python.error("dies").await, "the plugin's process was killed by SIGSEGV during the call");
    assert_eq!(python.ended().await, Some(Exit::Signal(libc::SIGSEGV)));
    let python = folder.start().await;
    let closed = python.error("closes").await;
    assert!(closed.ends_with("during the call"), "{closed}");
    assert!(python.ended().await.is_some_and(|exit| exit != Exit::CLEAN));
}

#[tokio::test]
async fn a_plugin_cleans_up_and_is_not_waited_for_for_ever() {
    let source = RENDEZVOUS.to_owned()
        + r#"
class Weather(BasePlugin):
    async def waits(self, x):
        here("waits")
        try:
            await asyncio.sleep(1000)
        finally:
            here("ended")

    async def cleanup(self):
        until("ended")
        here("clean")
        if os.path.exists("deaf"):
            time.sleep(1000)
"#;
    let folder = Folder::new(&source).with("waits", &["x"]);
    for exit in [Exit::CLEAN, Exit::Signal(libc::SIGKILL)] {
        let python = folder.start().await;
        let waits = asked(Some("waits"), json!({"x": "1"}));
        let closing = async {
            eventually("it waits", async || folder.path().join("waits").exists()).await;
            python.close().await;
        };
        let (reply, ()) = tokio::join!(python.call(&waits, PATIENCE), closing);
        assert!(reply.error.is_some());
        assert_eq!(python.ended().await, Some(exit));
        assert!(folder.path().join("clean").exists());
        for name in ["waits", "clean", "ended"] {
            fs::remove_file(folder.path().join(name)).unwrap();
        }
        folder.write("deaf", "");
    }
}
