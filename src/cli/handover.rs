//! SIGUSR2: the next image of the program takes the hall over, in this same process.

use std::os::fd::{AsRawFd, RawFd};

use serde_json::value::RawValue;

use super::doors::{Doors, HandedDoors};
use super::output::Output;
use crate::hall::Hall;
use crate::process::{PassedListener, inheritance, on_trial, own_program, pass_trial, succeed, try_out};

/// All that is handed over.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Estate {
    pub(super) hall: Box<RawValue>,
    pub(super) doors: HandedDoors,
    /// What the service manager has passed: name and descriptor.
    listeners: Vec<(String, RawFd)>,
}

impl Estate {
    pub(super) fn take_listeners(&self) -> std::io::Result<Vec<PassedListener>> {
        let listeners = self.listeners.iter().cloned();
        listeners.map(|(name, descriptor)| PassedListener::inherit(name, descriptor)).collect()
    }

    /// What the image before this one has handed over, if there was one.
    pub(super) fn inherit() -> Option<Result<Self, String>> {
        let inherited = inheritance()?;
        Some(inherited.map_err(|error| error.to_string()).and_then(|text| {
            serde_json::from_slice(&text)
                .map_err(|error| format!("what was handed over cannot be read: {error}"))
        }))
    }
}

/// Says whether this program could take the running hall over, if that is all it was started for.
pub(super) fn trial() -> Option<Result<(), String>> {
    let estate = on_trial()?;
    let read = || {
        let estate = estate.map_err(|error| error.to_string())?;
        let text = std::str::from_utf8(&estate).map_err(|error| error.to_string())?;
        Hall::try_resume(text)
    };
    Some(read().inspect(|()| pass_trial()))
}

/// Returns only if the hall goes on as it is, with the reason.
pub(super) async fn hand_over(
    hall: &Hall, doors: &Doors, passed: &[PassedListener], output: Output,
) -> String {
    let program = own_program();
    let appraised = match hall.appraise().await {
        Ok(appraised) => appraised,
        Err(error) => return error.to_string(),
    };
    let tried = {
        let program = program.clone();
        tokio::task::spawn_blocking(move || try_out(&program, appraised.as_bytes())).await
    };
    match tried {
        Ok(Ok(())) => {}
        Ok(Err(why)) => return why,
        Err(panic) => return panic.to_string(),
    }
    let paused = doors.pause().await;
    let handed = paused.handed();
    let listeners: Vec<(String, RawFd)> =
        passed.iter().map(|passed| (passed.name.clone(), passed.listener.as_raw_fd())).collect();
    let become_next = move |hall: &str, keep: &[RawFd]| {
        let passed = listeners.iter().map(|(_, descriptor)| *descriptor);
        let keep: Vec<RawFd> = keep.iter().copied().chain(handed.descriptors()).chain(passed).collect();
        let whole = RawValue::from_string(hall.into())
            .and_then(|hall| serde_json::to_vec(&Estate { hall, doors: handed, listeners }));
        output.drain();
        match whole {
            Ok(estate) => succeed(&program, &estate, &keep),
            Err(error) => error.into(),
        }
    };
    let error = hall.hand_over(Box::new(become_next)).await;
    doors.unpause(paused).await;
    error.to_string()
}
