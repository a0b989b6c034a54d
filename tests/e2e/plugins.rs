//! HomeClaw plugins of a test's own that run elsewhere: their descriptors, and a server that answers for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::hall::Hall;

/// Of a plugin whose server is nowhere.
pub fn descriptor(id: &str) -> Value {
    at(id, 1)
}

/// Of a plugin whose server listens on this port.
pub fn at(id: &str, port: u16) -> Value {
    let base = format!("http://127.0.0.1:{port}");
    json!({
        "plugin_id": id,
        "name": "Slack Plugin",
        "description": "Post messages to Slack and read channel history.",
        "description_long": "Integrates with Slack: post messages, list channels, read history.",
        "health_check_url": format!("{base}/health"),
        "type": "http",
        "config": {"base_url": base, "path": "/run", "timeout_sec": 30, "headers": {"Authorization": "Bearer sesame"}},
        "capabilities": [{
            "id": "post_message", "name": "Post message", "description": "Post a message to a Slack channel.",
            "parameters": [
                {"name": "channel", "type": "string", "required": true, "description": "Channel id or name"},
                {"name": "text", "type": "string", "required": true, "description": "Message text", "multiline": true}
            ],
            "output_description": "Success or error message.", "post_process": false, "method": "POST", "path": "/post",
            "rate_limit": {"per_minute": 20}
        }]
    })
}

impl Hall {
    /// Registers a plugin that must be taken, and returns its member.
    #[track_caller]
    pub fn register(&self, descriptor: &Value) -> String {
        let (status, answer) = self.post("/api/plugins/register", descriptor);
        assert_eq!((status, &answer["registered"]), (200, &json!(true)), "{answer}");
        assert_eq!(answer["plugin_id"], descriptor["plugin_id"]);
        answer["member"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn unregister(&self, id: &str) {
        let (status, answer) = self.post("/api/plugins/unregister", &json!({"plugin_id": id}));
        assert_eq!((status, &answer["unregistered"]), (200, &json!(true)), "{answer}");
    }

    /// The descriptor of a plugin as the hall shows it.
    pub fn plugin(&self, id: &str) -> Option<Value> {
        let (status, all) = self.get("/api/plugins");
        assert_eq!(status, 200, "{all}");
        all.as_array().unwrap().iter().find(|plugin| plugin["id"] == id).cloned()
    }

    pub fn is_well(&self, id: &str) -> bool {
        let (status, answer) = self.get(&format!("/api/plugins/health/{id}"));
        assert_eq!(status, 200, "{answer}");
        answer["ok"].as_bool().unwrap()
    }
}

/// The server of a plugin: `GET /health` as it is told, `POST` to anything else echoes what came.
pub struct Service {
    pub port: u16,
    /// The status of the health check; 0: it is never answered.
    health: Arc<AtomicU16>,
    ended: Arc<AtomicBool>,
    /// Paths that were asked for, and the bodies that came.
    pub asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Service {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = Self {
            port: listener.local_addr().unwrap().port(),
            health: Arc::new(AtomicU16::new(200)),
            ended: Arc::default(),
            asked: Arc::default(),
        };
        let (health, ended, asked) = (service.health.clone(), service.ended.clone(), service.asked.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let (health, asked) = (health.clone(), asked.clone());
                thread::spawn(move || answer(stream, &health, &asked));
            }
        });
        service
    }

    pub fn set_health(&self, status: u16) {
        self.health.store(status, Ordering::SeqCst);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// One request a connection.
fn answer(stream: TcpStream, health: &AtomicU16, asked: &Mutex<Vec<(String, Value)>>) -> Option<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let came: Value = serde_json::from_slice(&body).unwrap_or_default();
    let status = if path == "/health" { health.load(Ordering::SeqCst) } else { 200 };
    if status == 0 {
        let _ = reader.read(&mut [0]);
        return None;
    }
    asked.lock().unwrap().push((path, came.clone()));
    let said = json!({"success": true, "text": format!("got {came}"), "metadata": {}}).to_string();
    let head = format!("HTTP/1.1 {status} Whatever\r\nconnection: close\r\ncontent-type: application/json");
    write!(reader.get_mut(), "{head}\r\ncontent-length: {}\r\n\r\n{said}", said.len()).ok()
}
