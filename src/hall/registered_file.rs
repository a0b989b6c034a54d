//! `registered.json` as a file: a list of descriptors, as they came. Called by `registered`.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::process::fault;

/// So many plugins may be registered...
pub(super) const MOST: usize = 1_000;
/// ...with descriptors that are together no longer than this; bytes.
pub(super) const LARGEST: usize = 64 * 1024 * 1024;

/// Blocks.
pub(super) fn read(path: &Path) -> io::Result<Vec<Box<RawValue>>> {
    #[derive(serde::Deserialize)]
    struct Written<'a> {
        #[serde(borrow)]
        plugins: Bounded<'a>,
    }
    let text = read_bounded(path)?;
    let Written { plugins: Bounded(descriptors) } = serde_json::from_slice(&text)?;
    Ok(descriptors.into_iter().map(ToOwned::to_owned).collect())
}

/// A list that is not read further than it may be long.
struct Bounded<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Bounded<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items;
        impl<'de> Visitor<'de> for Items {
            type Value = Bounded<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of descriptors")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    if items.len() == MOST {
                        return Err(serde::de::Error::custom(format!("more than {MOST} plugins")));
                    }
                    items.push(item);
                }
                Ok(Bounded(items))
            }
        }
        deserializer.deserialize_seq(Items)
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    // A link or a FIFO of this name is none of ours.
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    // Commas, brackets and line ends besides.
    let limit = LARGEST as u64 + 4096;
    if meta.len() > limit {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    let mut text = Vec::new();
    file.take(limit).read_to_end(&mut text)?;
    Ok(text)
}

/// Puts what cannot be read out of the way of what will be written. Blocks.
pub(super) fn set_aside(path: &Path, why: &io::Error) {
    let aside = path.with_extension("json.aside");
    match fault::attempt("set a file aside", || fs::rename(path, &aside)) {
        Ok(()) => tracing::warn!(
            "cannot read {}: {why}; no plugin is registered. It is kept as {}: mend it and put it back while no hall \
             runs, or register the plugins again",
            path.display(),
            aside.display()
        ),
        Err(error) => {
            tracing::warn!("cannot read {}: {why}; and it cannot be set aside: {error}", path.display());
        }
    }
}

/// Whole or not at all, also if the machine fails. Blocks.
pub(super) fn write<'a>(path: &Path, descriptors: impl Iterator<Item = &'a RawValue>) -> io::Result<()> {
    let mut text = String::from("{\"plugins\": [");
    for (n, descriptor) in descriptors.enumerate() {
        text.push_str(if n == 0 { "\n" } else { ",\n" });
        text.push_str(descriptor.get());
    }
    text.push_str("\n]}\n");
    let next = path.with_extension("json.new");
    fault::attempt("write what is registered", || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(&next)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()
    })?;
    fault::attempt("rename what is registered", || fs::rename(&next, path))
}
