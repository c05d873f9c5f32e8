//! What is printed: medians over the rounds, and ratios to the same server without layers, each the median of what it was
//! within a round.

use serde::Serialize;

use super::{
    Error,
    options::{Options, processors},
    rounds::{Cell, Round},
    rows::Layers,
};

/// One object a line. Ratios and noise are null where a server has one row only.
#[derive(Serialize)]
struct Row {
    server: &'static str,
    layers: &'static str,
    answer: &'static str,
    /// Calls a second, each connection calling again as soon as it is answered.
    rps: f64,
    /// Latencies at `offered_rps`, from when a call was due.
    p50_us: f64,
    p99_us: f64,
    ratio: Option<f64>,
    p50_ratio: Option<f64>,
    p99_ratio: Option<f64>,
    /// The same ratios of a second process of the server without layers: what is no further from 1 says nothing.
    noise: Option<f64>,
    p50_noise: Option<f64>,
    p99_noise: Option<f64>,
    offered_rps: f64,
    /// Latencies while `rps` was measured.
    saturated_p50_us: f64,
    saturated_p99_us: f64,
    /// What the server's process ran for a call, on all processors.
    cpu_us: Option<f64>,
    cpu_ratio: Option<f64>,
    /// The share of the time in which the clients waited for the server while `rps` was measured. Near 0 they were the limit.
    client_idle: f64,
    connections: usize,
    keys: bool,
    rounds: u32,
    threads: usize,
    processors: usize,
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match values.get(low).zip(values.get(high)) {
        Some((low, high)) => low.midpoint(*high),
        None => f64::NAN,
    }
}

/// To so many digits after the point: what comes after them is noise.
fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

struct Cells<'a>(&'a [Cell]);

impl Cells<'_> {
    fn without_layers(&self, cell: &Cell, again: bool) -> Option<&Cell> {
        let same = |other: &&Cell| {
            other.server == cell.server && other.layers == Layers::None && other.again == again
        };
        self.0.iter().find(same)
    }

    fn ratio(&self, cell: &Cell, of: impl Fn(&Round) -> Option<f64>) -> Option<f64> {
        let base = self.without_layers(cell, false)?;
        let within = cell.rounds.iter().zip(&base.rounds);
        let ratios: Option<Vec<_>> = within.map(|(a, b)| Some(of(a)? / of(b)?)).collect();
        Some(rounded(median(ratios?.into_iter()), 4))
    }

    fn row(&self, cell: &Cell, options: &Options) -> Row {
        let of = |value: fn(&Round) -> f64, digits| {
            rounded(median(cell.rounds.iter().map(value)), digits)
        };
        let cpu: Option<Vec<_>> = cell.rounds.iter().map(|round| round.cpu).collect();
        let guarded = cell.server.is_guarded();
        let ratio = |value: fn(&Round) -> f64| {
            let ratio = || self.ratio(cell, |round| Some(value(round)));
            guarded.then(ratio).flatten()
        };
        let noise = |value: fn(&Round) -> f64| {
            let again = self.without_layers(cell, true)?;
            self.ratio(again, |round| Some(value(round)))
        };
        Row {
            server: cell.server.name(),
            layers: cell.layers.name(),
            answer: cell.server.answer(),
            rps: of(|round| round.rps, 0),
            p50_us: of(|round| round.p50, 1),
            p99_us: of(|round| round.p99, 1),
            ratio: ratio(|round| round.rps),
            p50_ratio: ratio(|round| round.p50),
            p99_ratio: ratio(|round| round.p99),
            noise: noise(|round| round.rps),
            p50_noise: noise(|round| round.p50),
            p99_noise: noise(|round| round.p99),
            offered_rps: rounded(cell.offered, 0),
            saturated_p50_us: of(|round| round.saturated_p50, 1),
            saturated_p99_us: of(|round| round.saturated_p99, 1),
            cpu_us: cpu.map(|cpu| rounded(median(cpu.into_iter()), 2)),
            cpu_ratio: self.ratio(cell, |round| round.cpu).filter(|_| guarded),
            client_idle: of(|round| round.idle, 2),
            connections: options.connections,
            keys: options.keys,
            rounds: options.rounds,
            threads: options.threads,
            processors: processors(),
        }
    }
}

pub(crate) fn print_json(cells: &[Cell], options: &Options) -> Result<(), Error> {
    for cell in cells.iter().filter(|cell| !cell.again) {
        println!(
            "{}",
            serde_json::to_string(&Cells(cells).row(cell, options))?
        );
    }
    Ok(())
}

pub(crate) fn print_table(cells: &[Cell], options: &Options) {
    println!(
        "{} processors{}, shared by the server ({} threads of its runtime) and its clients (one thread).",
        processors(),
        model()
            .map(|model| format!(" ({model})"))
            .unwrap_or_default(),
        options.threads,
    );
    println!(
        "tools/call on {} connections, each with a session of its own{}; {:.1} s a row and way of asking, in {} rounds.",
        options.connections,
        match options.keys {
            true => " and each call with a key of its own",
            false => "",
        },
        options.duration.as_secs_f64(),
        options.rounds,
    );
    println!(
        "Latencies are those of calls that become due at random, so many a second, from when they are due."
    );
    println!(
        "Ratios are to the same server without layers; 'none, again' is another process of it, and shows the noise.\n"
    );
    println!(
        "{:9} {:19} {:6} | {:>9} {:>6} | {:>9} {:>6} | {:>9} {:>8} {:>6} {:>8} {:>6}",
        "server",
        "layers",
        "answer",
        "calls/s",
        "ratio",
        "CPU us",
        "ratio",
        "offered/s",
        "p50 us",
        "ratio",
        "p99 us",
        "ratio"
    );
    let shown = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"));
    let mut limited = false;
    for cell in cells {
        let row = Cells(cells).row(cell, options);
        let layers = match cell.again {
            true => "none, again",
            false => cell.layers.label(),
        };
        let limit = row.client_idle < 0.05;
        limited |= limit;
        println!(
            "{:9} {layers:19} {:6} | {:>8.0}{} {:>6} | {:>9} {:>6} | {:>9.0} {:>8.1} {:>6} {:>8.1} {:>6}",
            row.server,
            row.answer,
            row.rps,
            if limit { '+' } else { ' ' },
            shown(row.ratio),
            row.cpu_us
                .map_or_else(String::new, |cpu| format!("{cpu:.2}")),
            shown(row.cpu_ratio),
            row.offered_rps,
            row.p50_us,
            shown(row.p50_ratio),
            row.p99_us,
            shown(row.p99_ratio),
        );
    }
    if limited {
        println!("\n+ at least: the clients were the limit");
    }
}

fn model() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
