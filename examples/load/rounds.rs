//! All rows in one run, side by side: each has its turn in every round, and never at the same place in it.

use std::{env, process::Command, time::Duration};

use hdrhistogram::Histogram;

use super::{
    Error,
    child::Process,
    drive::{Clients, Turn},
    options::{Options, processors},
    peer,
    rows::{Layers, Server},
    serve::SERVE,
};

/// A server that is measured.
pub(crate) struct Cell {
    pub(crate) server: Server,
    pub(crate) layers: Layers,
    /// The same as another, to tell what differs from what varies.
    pub(crate) again: bool,
    process: Process,
    clients: Clients,
    /// Calls a second that its latencies were measured at.
    pub(crate) offered: f64,
    pub(crate) rounds: Vec<Round>,
}

/// What one turn in one round came to. Latencies in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) rps: f64,
    pub(crate) saturated_p50: f64,
    pub(crate) saturated_p99: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Microseconds of the server's processes for a call.
    pub(crate) cpu: Option<f64>,
    /// The share of the time that its clients had nothing to do.
    pub(crate) idle: f64,
}

impl Cell {
    fn start(
        options: &Options,
        server: Server,
        layers: Layers,
        again: bool,
        command: Command,
    ) -> Result<Self, Error> {
        let process = Process::start(command)?;
        // Only where the clients have a processor to themselves.
        let spins = processors() > options.threads;
        let clients = Clients::open(process.address, options.connections, options.keys, spins)?;
        Ok(Self {
            server,
            layers,
            again,
            process,
            clients,
            offered: 0.0,
            rounds: Vec::new(),
        })
    }

    fn measure(&mut self, part: Duration, round: u64) -> Result<(), Error> {
        let before = self.process.processor_time();
        let saturated = self.clients.saturate(part, u64::MAX)?;
        let after = self.process.processor_time();
        let offered = self.clients.offer(part, self.offered, round)?;
        let spent = before.zip(after).map(|(before, after)| after - before);
        self.rounds.push(Round {
            rps: saturated.per_second(),
            saturated_p50: micros(&saturated.latencies, 0.5),
            saturated_p99: micros(&saturated.latencies, 0.99),
            p50: micros(&offered.latencies, 0.5),
            p99: micros(&offered.latencies, 0.99),
            cpu: spent.map(|spent| spent.as_secs_f64() * 1e6 / saturated.answered as f64),
            idle: saturated.idle.as_secs_f64() / saturated.elapsed.as_secs_f64(),
        });
        Ok(())
    }
}

fn micros(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1000.0
}

/// What a server is started with.
fn command(options: &Options, server: Server, layers: Layers) -> Result<Command, Error> {
    let threads = options.threads.to_string();
    let mut command;
    if server == Server::TowerMcp {
        command = Command::new(peer::tower_mcp()?);
    } else {
        command = Command::new(env::current_exe()?);
        command.args([SERVE, server.name(), layers.name()]);
    }
    command.arg(threads);
    Ok(command)
}

fn start(options: &Options) -> Result<Vec<Cell>, Error> {
    let mut cells = Vec::new();
    for &server in &options.servers {
        for &layers in &options.layers {
            if layers != Layers::None && !server.is_guarded() {
                continue;
            }
            let command = command(options, server, layers)?;
            cells.push(Cell::start(options, server, layers, false, command)?);
        }
        if server.is_guarded() {
            let command = command(options, server, Layers::None)?;
            cells.push(Cell::start(options, server, Layers::None, true, command)?);
        }
    }
    Ok(cells)
}

pub(crate) fn run(options: &Options) -> Result<Vec<Cell>, Error> {
    let mut cells = start(options)?;
    let part = options.duration / options.rounds;
    // Not counted, but for what each server can do: its rows are all offered the same.
    let mut warm = Vec::new();
    for cell in &mut cells {
        let turn = cell
            .clients
            .saturate(part.max(Duration::from_millis(50)), u64::MAX)?;
        if cell.layers == Layers::None && !cell.again {
            warm.push((cell.server, Turn::per_second(&turn)));
        }
    }
    for cell in &mut cells {
        let of = warm.iter().find(|(server, _)| *server == cell.server);
        let (_, rps) = of.ok_or("a server was not measured without layers")?;
        cell.offered = rps * options.rate;
    }
    for round in 0..options.rounds {
        let mut order: Vec<_> = (0..cells.len()).collect();
        order.rotate_left(round as usize % cells.len());
        if round % 2 == 1 {
            order.reverse();
        }
        for place in order {
            cells[place].measure(part, round.into())?;
        }
    }
    Ok(cells)
}
