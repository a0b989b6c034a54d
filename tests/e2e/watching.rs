//! `run --watch`: what changes in the members directory is taken up, and nothing else is touched.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hall::{BINARY, Hall, House, eventually, rogue_mcp};

/// How often a member was launched: rogue.py writes a line each time.
fn launches(dir: &Path) -> usize {
    fs::read_to_string(dir.join("launches")).unwrap_or_default().lines().count()
}

/// Waits until the hall has said (its log is not waited for) that it started a member anew for these
/// files, in this order, and for no other.
#[track_caller]
fn until_reasons(hall: &Hall, member: &str, wanted: &[&str]) {
    eventually("the log says why", || (reasons(hall, member).len() >= wanted.len()).then_some(()));
    assert_eq!(reasons(hall, member), wanted, "{}", hall.log());
}

/// Which files the hall says it started a member anew for, in order.
fn reasons(hall: &Hall, member: &str) -> Vec<String> {
    let whose = format!(" member={member} ");
    let log = hall.log();
    let why = log.lines().filter(|line| line.contains(&whose)).filter_map(|line| line.split_once("why=\""));
    why.filter_map(|(_, why)| Some(why.split_once(" changed; ")?.0.to_owned())).collect()
}

/// Waits until a member runs as another process than `before`, and returns its entry.
#[track_caller]
fn restarted(hall: &Hall, member: &str, before: &Value) -> Value {
    hall.until_entry(member, "is restarted", |entry| {
        entry["phase"] == "connected" && entry["instance"] != before["instance"]
    })
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[track_caller]
fn until_gone(hall: &Hall, member: &str) {
    eventually(&format!("{member} is gone"), || {
        (hall.get(&format!("/v1/roster/{}", member.replace('/', "%2F"))).0 == 404).then_some(())
    });
}

#[track_caller]
fn until_known(hall: &Hall, member: &str) -> Value {
    eventually(&format!("{member} is known"), || {
        (hall.get(&format!("/v1/roster/{}", member.replace('/', "%2F"))).0 == 200).then_some(())
    });
    hall.until(member, "connected")
}

#[test]
fn members_that_come_change_and_go_are_taken_up_and_no_other_is_touched() {
    let house = House::new();
    house.rogue("steady", &[]);
    let hall = house.start_with(&["--watch"]);
    let steady = hall.until("steady", "connected");

    let new = house.rogue("new", &[]);
    let first = until_known(&hall, "new");
    house.rogue("set/nested", &[]);
    until_known(&hall, "set/nested");

    house.rogue_with("new", &[], json!({"description": "Another"}));
    let second = restarted(&hall, "new", &first);
    assert_eq!(second["description"], "Another");
    assert_eq!(launches(&new), 2);

    fs::remove_dir_all(&new).unwrap();
    until_gone(&hall, "new");
    fs::rename(house.members().join("set"), house.members().join("other")).unwrap();
    until_known(&hall, "other/nested");
    until_gone(&hall, "set/nested");
    assert_eq!(hall.entry("steady")["instance"], steady["instance"]);
    hall.stop();
}

#[test]
fn a_changed_source_restarts_its_member_and_what_the_member_writes_does_not() {
    let house = House::new();
    let dir = house.rogue("weather", &[]);
    house.rogue("steady", &[]);
    write(&dir.join("server.py"), "1");
    write(&dir.join("node_modules/x/index.js"), "1");
    write(&dir.join("src/deep/er/helper.ts"), "1");
    let hall = house.start_with(&["--watch"]);
    let steady = hall.until("steady", "connected");
    let mut entry = hall.until("weather", "connected");

    for unwatched in [
        "node_modules/x/index.js",
        "node_modules/y/new.js",
        "__pycache__/server.cpython-311.pyc",
        "target/debug/build.rs",
        "venv/lib/site.py",
        ".git/hooks/x.sh",
        "data.json",
        "state.db",
        "weather.log",
        "src/deep/cache.json",
        ".#server.py",
        "server.py~",
        ".server.py.swp",
        "server.py.tmp",
        "4913",
    ] {
        write(&dir.join(unwatched), "2");
    }
    // Reading and attributes are no change.
    fs::read(dir.join("server.py")).unwrap();
    fs::set_permissions(dir.join("server.py"), fs::Permissions::from_mode(0o755)).unwrap();

    let watched = ["server.py", "src/deep/er/helper.ts", "src/new/added.mjs", ".env", "package.json"];
    for file in watched {
        write(&dir.join(file), "3");
        entry = restarted(&hall, "weather", &entry);
    }
    fs::remove_file(dir.join("package.json")).unwrap();
    restarted(&hall, "weather", &entry);
    until_reasons(&hall, "weather", &[&watched[..], &["package.json"]].concat());
    assert_eq!(launches(&dir), 1 + watched.len() + 1);
    assert_eq!(hall.entry("steady")["instance"], steady["instance"]);
    assert_eq!(hall.entry("weather")["restarts"], 0, "a changed file is no failure");
    hall.stop();
}

#[test]
fn the_globs_of_a_manifest_say_which_files_count() {
    let house = House::new();
    let knobs = rogue_mcp(&[]);
    let watch = json!(["data/*.json", "target/release/weather", "lib"]);
    let dir = house.member("weather", json!({"mcp": knobs, "watch": watch}));
    let silent = house.member("silent", json!({"mcp": knobs, "watch": []}));
    let hall = house.start_with(&["--watch"]);
    let mut entry = hall.until("weather", "connected");
    let before = hall.until("silent", "connected");
    write(&silent.join("server.py"), "1");
    for unwatched in ["server.py", "data/deep/a.json", "target/release/other", "target/debug/weather"] {
        write(&dir.join(unwatched), "1");
    }
    for watched in ["data/a.json", "target/release/weather", "lib/deep/any"] {
        write(&dir.join(watched), "1");
        entry = restarted(&hall, "weather", &entry);
    }
    // A program is often put in its place as a link to what was built elsewhere.
    fs::remove_file(dir.join("target/release/weather")).unwrap();
    fs::hard_link(dir.join("target/release/other"), dir.join("target/release/weather")).unwrap();
    entry = restarted(&hall, "weather", &entry);
    // Other globs are taken up with the manifest.
    house.member("weather", json!({"mcp": knobs, "watch": ["*.py"]}));
    entry = restarted(&hall, "weather", &entry);
    write(&dir.join("data/a.json"), "2");
    write(&dir.join("server.py"), "2");
    restarted(&hall, "weather", &entry);
    let wanted =
        ["data/a.json", "target/release/weather", "lib/deep/any", "target/release/weather", "server.py"];
    until_reasons(&hall, "weather", &wanted);
    assert_eq!(launches(&dir), 7);
    assert_eq!(hall.entry("silent")["instance"], before["instance"]);

    house.member("silent", json!({"mcp": knobs, "watch": ["src/["]}));
    let bad = hall.until_entry("silent", "has a complaint", |entry| !entry["error"].is_null());
    assert!(bad["error"].as_str().unwrap().contains("watch[0]: is the text \"src/[\""), "{bad}");
    hall.stop();
}

#[test]
fn however_an_editor_saves_it_is_one_restart() {
    let house = House::new();
    let dir = house.rogue("weather", &[]);
    let file = dir.join("server.py");
    write(&file, "0");
    let hall = house.start_with(&["--watch"]);
    let mut entry = hall.until("weather", "connected");
    let saves: [&dyn Fn(); 6] = [
        &|| fs::write(&file, "truncated and written").unwrap(),
        &|| {
            fs::write(dir.join(".server.py.new"), "renamed over").unwrap();
            fs::rename(dir.join(".server.py.new"), &file).unwrap();
        },
        &|| {
            fs::rename(&file, dir.join("server.py~")).unwrap();
            fs::write(&file, "the old one is a backup").unwrap();
            fs::remove_file(dir.join("server.py~")).unwrap();
        },
        &|| {
            fs::write(dir.join("4913"), "").unwrap();
            fs::remove_file(dir.join("4913")).unwrap();
            fs::remove_file(&file).unwrap();
            fs::write(&file, "deleted and created").unwrap();
        },
        &|| {
            for _ in 0..50 {
                fs::write(&file, "saved again and again").unwrap();
            }
        },
        &|| {
            fs::remove_file(&file).unwrap();
            symlink("elsewhere.py", &file).unwrap();
        },
    ];
    for (n, save) in saves.iter().enumerate() {
        save();
        entry = restarted(&hall, "weather", &entry);
        until_reasons(&hall, "weather", &vec!["server.py"; n + 1]);
    }
    fs::write(dir.join("last.py"), "").unwrap();
    restarted(&hall, "weather", &entry);
    assert_eq!(launches(&dir), 1 + saves.len() + 1, "{}", hall.log());
    hall.stop();
}

#[test]
fn an_invalid_manifest_changes_nothing_until_it_is_valid_and_different() {
    let house = House::new();
    let dir = house.rogue("weather", &[]);
    let manifest = dir.join("guild-member.json");
    let good = fs::read_to_string(&manifest).unwrap();
    let hall = house.start_with(&["--watch"]);
    let before = hall.until("weather", "connected");
    for broken in ["", "{\"name\": "] {
        fs::write(&manifest, broken).unwrap();
        let entry = hall.until_entry("weather", "has a complaint", |entry| !entry["error"].is_null());
        assert_eq!((&entry["phase"], &entry["instance"]), (&json!("connected"), &before["instance"]));
        fs::write(&manifest, &good).unwrap();
        let entry = hall.until_entry("weather", "has no complaint", |entry| entry["error"].is_null());
        assert_eq!((&entry["phase"], &entry["instance"]), (&json!("connected"), &before["instance"]));
    }
    // Its files count also while the manifest is broken.
    fs::write(&manifest, "{").unwrap();
    hall.until_entry("weather", "has a complaint", |entry| !entry["error"].is_null());
    write(&dir.join("server.py"), "1");
    let entry = restarted(&hall, "weather", &before);
    fs::write(&manifest, good.replace("A member of a test", "Another")).unwrap();
    let entry = restarted(&hall, "weather", &entry);
    assert_eq!((entry["description"].as_str(), launches(&dir)), (Some("Another"), 3));

    // One that was invalid from the beginning.
    write(&house.member_dir("late").join("guild-member.json"), "{");
    eventually("it is known", || (hall.get("/v1/roster/late").0 == 200).then_some(()));
    hall.until("late", "invalid");
    house.rogue("late", &[]);
    hall.until("late", "connected");
    hall.stop();
}

#[test]
fn directories_that_are_moved_in_are_taken_up_whole() {
    let house = House::new();
    let dir = house.rogue("weather", &[]);
    let outside = house.run_dir().parent().unwrap().join("outside");
    let manifest = dir.join("guild-member.json");
    for inner in ["set/one", "set/two", "single"] {
        fs::create_dir_all(outside.join(inner).join("src")).unwrap();
        fs::copy(&manifest, outside.join(inner).join("guild-member.json")).unwrap();
    }
    write(&outside.join("package/deep/part.py"), "1");
    let hall = house.start_with(&["--watch"]);
    let mut entry = hall.until("weather", "connected");

    for whole in ["set", "single"] {
        fs::rename(outside.join(whole), house.members().join(whole)).unwrap();
    }
    let one = until_known(&hall, "set/one");
    until_known(&hall, "set/two");
    until_known(&hall, "single");
    write(&house.members().join("set/one/src/server.py"), "1");
    restarted(&hall, "set/one", &one);

    // Into a member, and within it.
    fs::rename(outside.join("package"), dir.join("package")).unwrap();
    entry = restarted(&hall, "weather", &entry);
    fs::rename(dir.join("package"), dir.join("renamed")).unwrap();
    entry = restarted(&hall, "weather", &entry);
    write(&dir.join("renamed/deep/part.py"), "2");
    entry = restarted(&hall, "weather", &entry);
    // Out of it: from then on it is none of its business.
    fs::rename(dir.join("renamed"), outside.join("package")).unwrap();
    entry = restarted(&hall, "weather", &entry);
    write(&outside.join("package/deep/part.py"), "3");
    // What holds nothing that counts may come and go.
    write(&outside.join("cache/data.json"), "1");
    fs::rename(outside.join("cache"), dir.join("cache")).unwrap();
    fs::rename(dir.join("cache"), outside.join("cache")).unwrap();
    write(&dir.join("last.py"), "1");
    restarted(&hall, "weather", &entry);
    eventually("the log says why", || (reasons(&hall, "weather").len() >= 5).then_some(()));
    let reasons = reasons(&hall, "weather");
    assert_eq!(reasons.len(), 5, "{reasons:?}");
    assert_eq!((reasons[0].as_str(), reasons[4].as_str()), ("package/deep/part.py", "last.py"));
    assert_eq!(launches(&dir), 6);
    hall.stop();
}

#[test]
fn a_member_that_a_link_leads_to_is_watched_where_it_is() {
    let house = House::new();
    let kept = house.rogue(".store/kept", &[]);
    let hall = house.start_with(&["--watch"]);
    symlink(".store/kept", house.members().join("kept")).unwrap();
    let first = until_known(&hall, "kept");
    write(&kept.join("src/server.py"), "1");
    let second = restarted(&hall, "kept", &first);
    house.rogue_with(".store/kept", &[], json!({"description": "Another"}));
    restarted(&hall, "kept", &second);
    fs::remove_file(house.members().join("kept")).unwrap();
    until_gone(&hall, "kept");
    until_reasons(&hall, "kept", &["src/server.py"]);
    assert_eq!(launches(&kept), 3);
    hall.stop();
}

#[test]
fn a_changed_file_starts_what_failed_or_ended_but_not_what_was_asked_to_stop() {
    let house = House::new();
    let failed = house.rogue_with("failed", &["--crash-at-start"], json!({"restart": "never"}));
    let ended = house.member("ended", json!({"mcp": {"command": "./program", "args": []}}));
    write(&ended.join("program"), "#!/bin/sh\necho >>launches\n");
    fs::set_permissions(ended.join("program"), fs::Permissions::from_mode(0o755)).unwrap();
    let stopped = house.rogue("stopped", &[]);
    let hall = house.start_with(&["--watch"]);
    hall.until("failed", "failed");
    hall.until_entry("ended", "has ended", |entry| !entry["lastExit"].is_null());
    hall.until("stopped", "connected");
    hall.post("/v1/members/stopped/stop", &json!({}));

    write(&stopped.join("server.py"), "1");
    write(&failed.join("server.py"), "1");
    eventually("it is started", || (launches(&failed) == 2).then_some(()));
    write(&ended.join("program"), "#!/bin/sh\necho >>launches\nexit 0\n");
    eventually("it is started", || (launches(&ended) == 2).then_some(()));
    until_reasons(&hall, "failed", &["server.py"]);
    until_reasons(&hall, "ended", &["program"]);
    assert_eq!(hall.entry("stopped")["phase"], "stopped");
    assert_eq!(launches(&stopped), 1);
    hall.stop();
}

#[test]
fn ten_thousand_files_at_once_are_one_change() {
    let house = House::new();
    let dir = house.rogue("weather", &[]);
    house.rogue("steady", &[]);
    let hall = house.start_with(&["--watch"]);
    let steady = hall.until("steady", "connected");
    let entry = hall.until("weather", "connected");
    let create = |extension: &str| {
        let began = Instant::now();
        for n in 0..10_000 {
            fs::write(dir.join(format!("burst{n}.{extension}")), "").unwrap();
            if n % 500 == 0 {
                assert_eq!(hall.get("/v1/roster/steady").0, 200, "the hall answers meanwhile");
            }
        }
        began.elapsed().as_secs()
    };
    create("json");
    write(&dir.join("server.py"), "1");
    let entry = restarted(&hall, "weather", &entry);
    until_reasons(&hall, "weather", &["server.py"]);
    assert_eq!(launches(&dir), 2);

    // Of sources: one restart a second, at the most, however many change.
    let seconds = usize::try_from(create("py")).unwrap();
    restarted(&hall, "weather", &entry);
    let restarts = reasons(&hall, "weather").len() - 1;
    assert!(restarts <= seconds + 2, "{restarts} restarts in {seconds} s");
    assert_eq!(hall.entry("steady")["instance"], steady["instance"]);
    hall.stop();
}

#[test]
fn what_the_kernel_could_not_tell_is_looked_for() {
    let house = House::new();
    let dir = house.rogue("weather", &[]);
    house.rogue("steady", &[]);
    write(&dir.join("src/server.py"), "1");
    let hall = house.start_with(&["--watch"]);
    let steady = hall.until("steady", "connected");
    let before = hall.until("weather", "connected");
    let queue: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    // While the hall cannot listen, more happens than the kernel keeps.
    hall.signal(Signal::STOP);
    let (one, two) = (dir.join("one.json"), dir.join("two.json"));
    for _ in 0..=queue / 2 {
        fs::write(&one, "").unwrap();
        fs::write(&two, "").unwrap();
    }
    write(&dir.join("src/server.py"), "2");
    house.rogue("new", &[]);
    hall.signal(Signal::CONT);
    restarted(&hall, "weather", &before);
    until_known(&hall, "new");
    until_reasons(&hall, "weather", &["src/server.py"]);
    assert_eq!(launches(&dir), 2);
    assert_eq!(hall.entry("steady")["instance"], steady["instance"]);
    hall.stop();
}

#[test]
fn a_members_directory_that_goes_away_and_comes_back_is_found_again() {
    let house = House::new();
    let dir = house.rogue("weather", &[]);
    let hall = house.start_with(&["--watch"]);
    let before = hall.until("weather", "connected");
    // Asking the house would make it anew.
    let members = house.members();
    let away = house.run_dir().parent().unwrap().join("away");
    for _ in 0..2 {
        let told = hall.log().matches("members run on as they are").count();
        fs::rename(&members, &away).unwrap();
        eventually("it is told", || {
            (hall.log().matches("members run on as they are").count() > told).then_some(())
        });
        assert_eq!(hall.entry("weather")["instance"], before["instance"]);
        fs::create_dir(away.join("new")).unwrap();
        fs::copy(away.join("weather/guild-member.json"), away.join("new/guild-member.json")).unwrap();
        fs::rename(&away, &members).unwrap();
        until_known(&hall, "new");
        fs::remove_dir_all(members.join("new")).unwrap();
        until_gone(&hall, "new");
    }
    assert_eq!(hall.entry("weather")["instance"], before["instance"]);
    write(&dir.join("server.py"), "1");
    restarted(&hall, "weather", &before);
    assert_eq!(launches(&dir), 2);
    hall.stop();
}

#[test]
fn a_member_with_too_many_directories_is_watched_in_part_and_it_is_said() {
    let house = House::new();
    let dir = house.rogue("weather", &[]);
    for n in 0..1_500 {
        fs::create_dir_all(dir.join(format!("many/{n}"))).unwrap();
    }
    let hall = house.start_with(&["--watch"]);
    let before = hall.until("weather", "connected");
    eventually("it is said", || hall.log().contains("has more than 1000 directories").then_some(()));
    write(&dir.join("server.py"), "1");
    restarted(&hall, "weather", &before);
    // Once, however often the members directory is read.
    house.rogue("new", &[]);
    until_known(&hall, "new");
    assert_eq!(hall.log().matches("has more than 1000 directories").count(), 1, "{}", hall.log());
    hall.stop();
}

#[test]
fn without_watch_nothing_happens_until_a_reload() {
    let house = House::new();
    let dir = house.rogue("weather", &[]);
    let hall = house.start();
    let before = hall.until("weather", "connected");
    write(&dir.join("server.py"), "1");
    house.rogue_with("weather", &[], json!({"description": "Another"}));
    house.rogue("new", &[]);
    let tasks = fs::read_dir(format!("/proc/{}/task", hall.pid())).unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    assert_eq!(names.filter(|name| name.trim() == "watch").count(), 0, "nobody watches");
    assert_eq!(hall.entry("weather")["instance"], before["instance"]);
    let (_, changes) = hall.post("/v1/reload", &json!({}));
    assert_eq!(changes, json!({"added": ["new"], "changed": ["weather"], "removed": [], "unchanged": 0}));
    restarted(&hall, "weather", &before);
    hall.stop();
}

#[test]
fn watch_is_also_a_variable_and_a_key() {
    let house = House::new();
    let dir = house.rogue("weather", &[]);
    let mut command = Command::new(BINARY);
    command.env("GUILD_HALL_WATCH", "yes");
    let hall = house.start_command(command, &[]);
    let before = hall.until("weather", "connected");
    write(&dir.join("server.py"), "1");
    restarted(&hall, "weather", &before);
    hall.stop();
    fs::write(house.run_dir().parent().unwrap().join("guild-hall.yaml"), "watch: true\n").unwrap();
    let hall = house.start();
    let before = hall.until("weather", "connected");
    write(&dir.join("server.py"), "2");
    restarted(&hall, "weather", &before);
    hall.stop();
}
