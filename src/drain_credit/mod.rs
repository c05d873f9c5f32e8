//! wip
#![allow(dead_code)]
mod account;
