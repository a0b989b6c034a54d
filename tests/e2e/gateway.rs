//! The gateway: every tool behind one endpoint, and clients that do not notice what happens behind it.

use std::fs;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hall::{House, eventually, example};
use crate::mcp::{Answer, At, Mcp, Pipe, ReadWrite, stateless};
use crate::traces::{RECORD, count, requests};

fn socket(hall: &crate::hall::Hall) -> At {
    At::Socket(hall.socket.clone())
}

#[test]
fn all_tools_are_behind_one_endpoint_sorted_and_the_same_in_both_eras() {
    let house = House::new();
    house.member("example", example());
    house.rogue("toolbox/r", &[]);
    let hall = house.start();
    hall.until("example", "connected");
    hall.until("toolbox/r", "connected");
    let mcp = Mcp::open(&hall, "/mcp");
    let tools = mcp.tools();
    let expected = [
        "example__add",
        "example__echo",
        "toolbox-r__echo",
        "toolbox-r__env",
        "toolbox-r__pid",
        "toolbox-r__sleep",
    ];
    assert_eq!(tools, expected);
    let listed = stateless(&socket(&hall), "/mcp", "tools/list", json!({}));
    assert_eq!((listed.status, &listed.last()["result"]["resultType"]), (200, &json!("complete")));
    let newer: Vec<&str> = listed.last()["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(newer, expected);
    assert_eq!(mcp.text("toolbox-r__echo", json!({"text": "hello"})), "hello");
    let called = stateless(
        &socket(&hall),
        "/mcp",
        "tools/call",
        json!({"name": "example__echo", "arguments": {"text": "hi"}}),
    );
    assert_eq!(called.last()["result"]["content"][0]["text"], "hi");
    assert_eq!(called.last()["id"], 5);

    let one = Mcp::open(&hall, "/mcp/toolbox%2Fr");
    assert_eq!(one.tools(), ["echo", "env", "pid", "sleep"]);
    assert_eq!(one.text("echo", json!({"text": "alone"})), "alone");
    let nobody = socket(&hall).http("POST", "/mcp/nobody", &[], "{}").unwrap();
    assert_eq!(nobody.status, 404, "{}", nobody.body);
    assert!(nobody.body.contains("no member is called"), "{}", nobody.body);
}

#[test]
fn a_long_list_is_told_page_by_page() {
    let house = House::new();
    house.rogue("many", &["--lie", "many-tools=1200"]);
    let hall = house.start();
    hall.until("many", "connected");
    let mcp = Mcp::open(&hall, "/mcp");
    let (mut all, mut cursor, mut pages) = (Vec::new(), json!(null), 0);
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
        let page = mcp.ask("tools/list", params)["result"].clone();
        all.extend(
            page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()),
        );
        pages += 1;
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!((all.len(), pages), (1200, 3));
    assert!(all.is_sorted());
    let odd = mcp.ask("tools/list", json!({"cursor": "made up"}));
    assert_eq!(odd["error"]["code"], -32602, "{odd}");
}

#[test]
fn what_cannot_be_asked_is_said_with_what_to_do() {
    let house = House::new();
    house.member("example", example());
    house.member("stopped", example());
    let hall = house.start();
    hall.until("example", "connected");
    hall.until("stopped", "connected");
    let mcp = Mcp::open(&hall, "/mcp");
    assert_eq!(mcp.call("nobody__echo", json!({}))["error"]["code"], -32602);
    assert_eq!(mcp.ask("no/such", json!({}))["error"]["code"], -32601);
    assert_eq!(hall.post("/v1/members/stopped/stop", &json!({})).0, 200);
    eventually("its tools are gone", || {
        (!mcp.tools().iter().any(|tool| tool.starts_with("stopped"))).then_some(())
    });
    for (body, code) in [
        ("{", -32700),
        ("[]", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#, -32602),
    ] {
        let answer = socket(&hall).http("POST", "/mcp", &[("mcp-session-id", &mcp.session)], body).unwrap();
        assert_eq!(
            (answer.status, &answer.last()["error"]["code"]),
            (400, &json!(code)),
            "{body}: {}",
            answer.body
        );
    }
    let without =
        socket(&hall).http("POST", "/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).unwrap();
    assert_eq!(without.status, 400);
    assert!(without.body.contains("initialize"), "{}", without.body);
    let large =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":"{}"}}}}"#, "x".repeat(5 << 20));
    // It is refused before all of it is read.
    let refused = socket(&hall).http("POST", "/mcp", &[], &large);
    assert!(refused.is_none_or(|answer| answer.status == 413));
}

#[test]
fn a_session_is_known_by_every_later_hall_and_by_nobody_who_made_it_up() {
    let house = House::new();
    house.member("example", example());
    let mut hall = house.start();
    hall.until("example", "connected");
    let mcp = Mcp::open(&hall, "/mcp");
    assert_eq!(mcp.text("example__echo", json!({"text": "1"})), "1");
    hall.signal(Signal::KILL);
    hall.wait();
    let hall = house.start();
    // It comes while the member is taken over, and waits.
    assert_eq!(mcp.text("example__echo", json!({"text": "2"})), "2");
    let mut forged = mcp.clone();
    let last = forged.session.pop().unwrap();
    forged.session.push(if last == 'A' { 'B' } else { 'A' });
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(forged.try_post(&list).unwrap().status, 404);
    let ended = mcp.at.http("DELETE", "/mcp", &[("mcp-session-id", &mcp.session)], "").unwrap();
    assert_eq!(ended.status, 204);
    assert_eq!(mcp.try_post(&list).unwrap().status, 404);
    drop(hall);
}

#[test]
fn a_call_to_a_member_that_restarts_waits_for_it() {
    let house = House::new();
    house.rogue("r", &["--start-delay", "400"]);
    let hall = house.start();
    let before = hall.until("r", "connected")["pid"].clone();
    let mcp = Mcp::open(&hall, "/mcp");
    assert_eq!(hall.post("/v1/members/r/restart?wait=false", &json!({})).0, 202);
    assert_eq!(mcp.tools().len(), 4, "its tools stay meanwhile");
    let pid: Value = mcp.text("r__pid", json!({})).parse::<i64>().unwrap().into();
    assert_ne!(pid, before);
    assert_eq!(pid, hall.entry("r")["pid"]);
}

#[test]
fn a_call_that_was_sent_is_never_sent_again_and_says_so() {
    let house = House::new();
    for (name, lie) in [("crashing", "crash"), ("closing", "close")] {
        house.rogue(name, &[&RECORD[..], &["--lie", lie]].concat());
    }
    house.rogue_with("hanging", &[&RECORD[..], &["--lie", "hang"]].concat(), json!({"callTimeoutMs": 300}));
    let hall = house.start();
    for name in ["crashing", "closing", "hanging"] {
        hall.until(name, "connected");
        let mcp = Mcp::open(&hall, "/mcp");
        let answer = mcp.call(&format!("{name}__echo"), json!({"text": "x"}));
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let said = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(said.contains("not sent again"), "{said}");
        eventually("the member is well", || (hall.entry(name)["phase"] == "connected").then_some(()));
        assert_eq!(count(&house.member_dir(name), "tools/call"), 1, "{name}");
    }
    eventually("the one that hangs is told", || {
        (count(&house.member_dir("hanging"), "notifications/cancelled") == 1).then_some(())
    });
}

#[test]
fn a_client_that_goes_away_or_says_so_cancels_its_call() {
    let house = House::new();
    house.rogue("r", &RECORD);
    let hall = house.start();
    hall.until("r", "connected");
    let mcp = Mcp::open(&hall, "/mcp");
    let dir = house.member_dir("r");
    let arrives = |n| eventually("the call arrives", || (count(&dir, "tools/call") == n).then_some(()));
    mcp.abandon("tools/call", json!({"name": "r__sleep", "arguments": {"ms": 60_000}}), || arrives(1));
    eventually("the member is told", || (count(&dir, "notifications/cancelled") == 1).then_some(()));
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            mcp.try_post(&json!({"jsonrpc": "2.0", "id": "slow", "method": "tools/call",
            "params": {"name": "r__sleep", "arguments": {"ms": 60_000}}}))
        });
        arrives(2);
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}});
        assert_eq!(mcp.try_post(&cancel).unwrap().status, 202);
        assert_eq!(calling.join().unwrap().unwrap().status, 202);
    });
    eventually("the member is told", || (count(&dir, "notifications/cancelled") == 2).then_some(()));
    let cancelled: Vec<Value> = requests(&dir)
        .into_iter()
        .filter(|request| request["body"]["method"] == "notifications/cancelled")
        .map(|request| request["body"]["params"]["requestId"].clone())
        .collect();
    let called: Vec<Value> = requests(&dir)
        .into_iter()
        .filter(|request| request["body"]["method"] == "tools/call")
        .map(|request| request["body"]["id"].clone())
        .collect();
    assert_eq!(cancelled, called);
}

#[test]
fn a_member_that_hangs_lies_or_floods_delays_no_call_to_another() {
    let house = House::new();
    house.member("good", example());
    house.rogue("hanging", &["--lie", "hang"]);
    house.rogue("huge", &["--lie", "huge-call=67108864"]);
    house.rogue("endless", &["--lie", "sse-endless@tools/call"]);
    house.rogue("garbage", &["--lie", "chunked-garbage@tools/call"]);
    house.rogue("flooding", &["--flood", "stderr"]);
    let hall = house.start();
    let bad = ["hanging", "huge", "endless", "garbage", "flooding"];
    for name in bad.iter().chain(&["good"]) {
        hall.until(name, "connected");
    }
    let mcp = Mcp::open(&hall, "/mcp");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in bad {
            for _ in 0..8 {
                let (mcp, done) = (&mcp, &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                            "params": {"name": format!("{name}__echo"), "arguments": {"text": "x"}}});
                        let stream = mcp.clone();
                        stream.abandon("tools/call", call["params"].clone(), || {
                            std::thread::sleep(Duration::from_millis(50));
                        });
                    }
                });
            }
        }
        let began = Instant::now();
        for n in 0..200 {
            assert_eq!(mcp.text("good__echo", json!({"text": n.to_string()})), n.to_string());
        }
        let took = began.elapsed();
        done.store(true, Ordering::Relaxed);
        // No measure of speed: one that waited for another would take that one's 30 s.
        assert!(took < Duration::from_secs(25), "{took:?}");
    });
}

#[test]
fn a_member_that_is_killed_under_load_costs_nobody_else_a_call() {
    let house = House::new();
    house.member("steady", example());
    house.member("killed", example());
    let hall = house.start();
    hall.until("steady", "connected");
    hall.until("killed", "connected");
    let mcp = Mcp::open(&hall, "/mcp");
    let (stop, calls, lost) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..16 {
            let (mcp, stop, calls, lost) = (mcp.clone(), &stop, &calls, &lost);
            scope.spawn(move || {
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let text = format!("{client}-{n}");
                    if n % 2 == 0 {
                        assert_eq!(mcp.text("steady__echo", json!({"text": text})), text);
                    } else {
                        let answer = mcp.call("killed__echo", json!({"text": text}));
                        if answer["result"]["isError"] == true {
                            // Only one that the member had.
                            let said = answer["result"]["content"][0]["text"].as_str().unwrap();
                            assert!(said.contains("not sent again"), "{said}");
                            lost.fetch_add(1, Ordering::Relaxed);
                        } else {
                            assert_eq!(answer["result"]["content"][0]["text"], text.as_str(), "{answer}");
                        }
                    }
                    calls.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(30));
                }
            });
        }
        for _ in 0..5 {
            let before = hall.until("killed", "connected")["pid"].as_i64().unwrap();
            let pid = rustix::process::Pid::from_raw(i32::try_from(before).unwrap()).unwrap();
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            hall.until_entry("killed", "it is back", |entry| {
                entry["phase"] == "connected" && entry["pid"].as_i64() != Some(before)
            });
            let enough = calls.load(Ordering::Relaxed) + 32;
            eventually("calls go on", || (calls.load(Ordering::Relaxed) >= enough).then_some(()));
            if hall.entry("killed")["restarts"].as_u64().unwrap() >= 3 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(lost.load(Ordering::Relaxed) < 16 * 5, "{lost:?} of {calls:?}");
}

#[test]
fn listeners_hear_that_tools_have_come_and_gone() {
    let house = House::new();
    house.member("a", example());
    house.member("b", example());
    let hall = house.start();
    hall.until("a", "connected");
    hall.until("b", "connected");
    let mcp = Mcp::open(&hall, "/mcp");
    let mut next = mcp.stream();
    // The stream is open once its head is there, which the first message proves.
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| {
            loop {
                let message = next().expect("the stream goes on");
                if message["method"] == "notifications/tools/list_changed" {
                    return;
                }
            }
        });
        eventually("it is heard", || {
            for wish in ["stop", "start"] {
                assert_eq!(hall.post(&format!("/v1/members/b/{wish}"), &json!({})).0, 200);
            }
            heard.is_finished().then_some(())
        });
    });
}

#[test]
fn over_tcp_only_who_has_the_token_comes_in_and_no_web_page() {
    let house = House::new();
    house.member("example", example());
    let hall = house.start_with(&["--listen", "127.0.0.1:0"]);
    hall.until("example", "connected");
    let address = hall.get("/v1/roster").1["hall"]["gateway"].as_str().unwrap().to_owned();
    let at = At::Tcp(address.clone());
    let token = fs::read_to_string(house.run_dir().join("token")).unwrap();
    let bearer = format!("Bearer {}", token.trim());
    let list = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}}});
    let status =
        |headers: &[(&str, &str)]| at.http("POST", "/mcp", headers, &list.to_string()).unwrap().status;
    assert_eq!(status(&[]), 401);
    assert_eq!(status(&[("authorization", "Bearer wrong")]), 401);
    assert_eq!(status(&[("authorization", &bearer)]), 200);
    assert_eq!(status(&[("authorization", &bearer), ("origin", &format!("http://{address}"))]), 200);
    assert_eq!(status(&[("authorization", &bearer), ("origin", "http://evil.example.com")]), 403);
    assert_eq!(status(&[("authorization", &bearer), ("host", "evil.example.com")]), 403);
    for path in ["/v1/roster", "/metrics", "/healthz", "/api/roster"] {
        assert_eq!(at.http("GET", path, &[], "").unwrap().status, 401, "{path}");
        assert_eq!(at.http("GET", path, &[("authorization", &bearer)], "").unwrap().status, 200, "{path}");
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(house.run_dir().join("token")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    hall.stop();

    let hall = house.start_with(&["--listen", "127.0.0.1:0", "--no-auth"]);
    let at = At::Tcp(hall.get("/v1/roster").1["hall"]["gateway"].as_str().unwrap().to_owned());
    assert_eq!(at.http("POST", "/mcp", &[], &list.to_string()).unwrap().status, 200);
    assert_eq!(
        at.http("GET", "/v1/roster", &[], "").unwrap().status,
        404,
        "without a token the API is not there"
    );
    assert!(hall.log().contains("--no-auth"), "{}", hall.log());
    assert_eq!(fs::read_to_string(house.run_dir().join("token")).unwrap(), token, "it is kept");
}

#[test]
fn each_call_leaves_a_line_and_numbers_but_never_what_was_asked() {
    let house = House::new();
    house.member("example", example());
    let hall = house.start();
    hall.until("example", "connected");
    let mcp = Mcp::open(&hall, "/mcp");
    mcp.text("example__echo", json!({"text": "a secret"}));
    let audit = house.run_dir().join("audit.log");
    let line = eventually("it is noted", || {
        fs::read_to_string(&audit).ok().filter(|text| text.contains("tools/call"))
    });
    let noted: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&noted["who"], &noted["member"], &noted["name"]),
        (&json!("test/1"), &json!("example"), &json!("echo"))
    );
    assert_eq!(noted["outcome"], "ok");
    assert!(!line.contains("secret"), "{line}");
    let metrics = At::Socket(hall.socket.clone()).http("GET", "/metrics", &[], "").unwrap().body;
    let counted = r#"guild_hall_calls_total{member="example",outcome="ok"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    assert!(metrics.contains("guild_hall_call_duration_seconds_bucket"), "{metrics}");
    assert!(metrics.contains(r#"guild_hall_calls_in_flight{member="example"} 0"#), "{metrics}");
}

#[test]
fn over_stdio_a_client_does_not_notice_that_the_hall_was_killed() {
    let house = House::new();
    house.member("example", example());
    let mut hall = house.start();
    hall.until("example", "connected");
    let mut pipe = Pipe::open(&hall);
    let mut echo = |text: &str| {
        let params = json!({"name": "example__echo", "arguments": {"text": text}});
        pipe.ask("tools/call", params)["result"]["content"][0]["text"].clone()
    };
    assert_eq!(echo("one"), "one");
    hall.signal(Signal::KILL);
    hall.wait();
    let hall = house.start();
    assert_eq!(echo("two"), "two");
    pipe.close();
    assert_eq!(house.cli(&["mcp", "--member", "nobody"]).status.code(), Some(4));
    hall.stop();
    assert_eq!(house.cli(&["mcp"]).status.code(), Some(3));
}

/// Calls a tool of `member` whose answer comes in two halves, and reads what there is of the first.
fn first_half(mcp: &Mcp, member: &str) -> (Box<dyn ReadWrite>, Vec<u8>) {
    let mut stream = mcp.begin(&format!("{member}__pid"));
    let mut read = Vec::new();
    let mut piece = vec![0; 1 << 16];
    while read.len() < 1 << 20 {
        let length = stream.read(&mut piece).unwrap();
        assert_ne!(length, 0, "{}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&piece[..length]);
    }
    (stream, read)
}

#[test]
fn a_large_answer_reaches_the_client_while_it_is_still_written() {
    let house = House::new();
    let large = ["--lie", "huge-call=4000000", "--lie"];
    for way in ["halves", "sse-halves"] {
        house.rogue(way, &[&large[..], &[way]].concat());
    }
    let hall = house.start();
    for way in ["halves", "sse-halves"] {
        hall.until(way, "connected");
        let mcp = Mcp::open(&hall, "/mcp");
        let (mut stream, mut read) = first_half(&mcp, way);
        fs::write(house.member_dir(way).join("go"), "").unwrap();
        stream.read_to_end(&mut read).unwrap();
        let answer = Answer::read(&String::from_utf8(read).unwrap()).unwrap();
        assert_eq!(answer.last()["id"], 7);
        let text = &answer.last()["result"]["content"][0]["text"];
        assert_eq!(text.as_str().unwrap().len(), 4_000_000);
        // In the other era something is added to the result.
        let params = json!({"name": format!("{way}__pid"), "arguments": {}});
        let answer = stateless(&socket(&hall), "/mcp", "tools/call", params);
        assert_eq!(answer.last()["result"]["resultType"], "complete");
        assert_eq!(&answer.last()["result"]["content"][0]["text"], text);
    }
}

#[test]
fn a_large_answer_that_breaks_off_is_never_taken_for_a_whole_one() {
    let house = House::new();
    for way in ["halves", "sse-halves"] {
        house.rogue(way, &["--lie", "huge-call=4000000", "--lie", &format!("{way}=1")]);
    }
    let hall = house.start();
    for way in ["halves", "sse-halves"] {
        hall.until(way, "connected");
        let mcp = Mcp::open(&hall, "/mcp");
        let (mut stream, mut read) = first_half(&mcp, way);
        // HTTP says where a body ends: this one has no end.
        let _ = stream.read_to_end(&mut read);
        assert!(!read.ends_with(b"\r\n0\r\n\r\n"));
        let params = json!({"name": format!("{way}__pid"), "arguments": {}});
        let last = Pipe::open(&hall).ask("tools/call", params);
        assert!(last["error"]["message"].as_str().unwrap().contains("broke off"), "{last}");
    }
}

#[test]
fn a_call_hears_of_nothing_that_is_said_to_another() {
    let house = House::new();
    house.rogue("r", &["--lie", "mixed-up"]);
    let hall = house.start();
    hall.until("r", "connected");
    for token in [json!("mine"), json!(7)] {
        let params =
            json!({"name": "r__echo", "arguments": {"text": "hello"}, "_meta": {"progressToken": token}});
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
        let answer = Mcp::open(&hall, "/mcp").try_post(&body).unwrap();
        let [progress, result] = &answer.messages[..] else { panic!("{}", answer.body) };
        assert_eq!(progress["params"], json!({"progressToken": token, "progress": 1}));
        assert_eq!(result["result"]["content"][0]["text"], "hello");
    }
}
