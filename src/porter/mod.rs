//! F3. What stands in front of a plugin that does not itself speak MCP over HTTP.

// MERGER: this line goes with the real `mod.rs`; until then nobody calls what is here.
#![allow(dead_code, unused_imports)]

mod arguments;
mod diary;
mod llm;
mod offer;
mod python;
mod reply;
mod request;
mod rest;
mod subprocess;
mod toolbox;
mod web;
