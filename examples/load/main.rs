//! Calls a second and latencies of whole servers, bare and with the layers around them, in one run:
//! `cargo run --release --example load [-- --json] [OPTION]...`.
//!
//! Each server is a process of its own, and all of them have their turns in every round, so that what the machine does
//! meanwhile is the same for all. A turn has two halves:
//!
//! - Each connection calls again as soon as it is answered. That is what `rps` is taken from. Latencies taken so would flatter
//!   a server that stalls, since nobody calls it while it does.
//! - Calls become due at random times, at half of what the server answers without layers (`--rate`), the same for all its rows,
//!   and wait for a connection when none is free. `p50_us` and `p99_us` are taken from these, from when a call was due.
//!
//! What a layer does on the way of a call that carries no key and resumes nothing is what is measured; `--keys` has every
//! call claimed, run and recorded.
//!
//! To see where a server's time goes, start one alone under a profiler (`load serve rmcp all 1`, which says where it listens)
//! and call it: `load call ADDRESS CALLS`.

mod bare;
mod child;
mod drive;
mod options;
mod peer;
mod report;
mod rounds;
mod rows;
mod sdk;
mod serve;
mod wire;

use std::{process::ExitCode, time::Duration};

use options::Options;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn run(options: &Options) -> Result<(), Error> {
    if cfg!(debug_assertions) {
        eprintln!("load: this was compiled without optimization, and its figures say nothing");
    }
    let cells = rounds::run(options)?;
    if options.json {
        report::print_json(&cells, options)?;
    } else {
        report::print_table(&cells, options);
    }
    Ok(())
}

/// So many calls to a server that runs already.
fn call(mut args: impl Iterator<Item = String>) -> Result<(), Error> {
    let mut next = || args.next().ok_or("usage: load call ADDRESS CALLS");
    let (address, calls) = (next()?.parse()?, next()?.parse()?);
    let mut clients = drive::Clients::open(address, 32, false, false)?;
    let turn = clients.saturate(Duration::from_secs(600), calls)?;
    println!("{} calls, {:.0} a second", turn.answered, turn.per_second());
    Ok(())
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    let done = if args.next_if(|first| first == serve::SERVE).is_some() {
        serve::run(args)
    } else if args.next_if(|first| first == "call").is_some() {
        call(args)
    } else {
        match Options::parse(args) {
            Ok(options) => run(&options),
            Err(wrong) => {
                eprintln!("{wrong}\n\n{}", options::USAGE);
                return ExitCode::from(2);
            }
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}
