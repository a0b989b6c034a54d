//! Text for another program, in a file that is on no disk.

use std::fs::File;
use std::io::{self, Seek, Write};

use rustix::fs::{MemfdFlags, memfd_create};

/// To be read from its beginning.
pub(super) fn memory_file(content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"guild-hall", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}
