//! Incidents that MCP sessions have on more than one instance, run on real servers over real sockets, each
//! unguarded and guarded: `cargo run --release --example incidents [-- [--json] [--store redis[=ADDRESS]] [NAME]...]`.

mod balancer;
mod caller;
mod client;
mod counter;
mod edge;
mod gateway_retry;
mod guarded;
mod half_open;
mod handshakes;
mod naive;
mod notebook;
mod permissive;
mod pod;
mod rehash;
mod report;
mod ring;
mod rolling_deploy;
mod stateless_resume;
mod store;
mod stream;

use std::process::ExitCode;

use futures_util::future::BoxFuture;

use report::{Report, Variant, print_json, print_table};

type Error = Box<dyn std::error::Error + Send + Sync>;

struct Incident {
    name: &'static str,
    about: &'static str,
    run: fn(Variant) -> BoxFuture<'static, Result<Report, Error>>,
}

const INCIDENTS: &[Incident] = &[
    Incident {
        name: "rehash",
        about: "two of six instances crash and their sessions land on instances that never saw them",
        run: |variant| Box::pin(rehash::run(variant)),
    },
    Incident {
        name: "half_open",
        about: "one of 400 clients stops reading its stream and goes on calling",
        run: |variant| Box::pin(half_open::run(variant)),
    },
    Incident {
        name: "stateless_resume",
        about: "streams and calls land on instances that share the log of events and nothing else",
        run: |variant| Box::pin(stateless_resume::run(variant)),
    },
    Incident {
        name: "rolling_deploy",
        about: "three instances are replaced one by one under open streams",
        run: |variant| Box::pin(rolling_deploy::run(variant)),
    },
    Incident {
        name: "gateway_retry",
        about: "calls that move money time out and are sent again, to two instances, one of which is killed",
        run: |variant| Box::pin(gateway_retry::run(variant)),
    },
];

struct Options {
    json: bool,
    store: String,
    chosen: Vec<&'static Incident>,
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        json: false,
        store: "memory".to_owned(),
        chosen: Vec::new(),
    };
    while let Some(arg) = args.next() {
        if arg == "--json" {
            options.json = true;
        } else if arg == "--store" {
            options.store = args.next().ok_or("--store needs the name of one")?;
        } else if let Some(incident) = INCIDENTS.iter().find(|incident| incident.name == arg) {
            options.chosen.push(incident);
        } else {
            let names: Vec<_> = INCIDENTS.iter().map(|incident| incident.name).collect();
            let names = names.join(", ");
            return Err(format!(
                "unknown incident or option '{arg}'; the incidents are: {names}; the options are --json, --store redis"
            ));
        }
    }
    if options.chosen.is_empty() {
        options.chosen = INCIDENTS.iter().collect();
    }
    Ok(options)
}

/// Runs one incident in both variants and says whether each behaved as its variant must.
async fn run(incident: &Incident, json: bool) -> Result<bool, Error> {
    eprintln!("{}: {}", incident.name, incident.about);
    let mut reports = Vec::new();
    for variant in [Variant::Unguarded, Variant::Guarded] {
        let report = (incident.run)(variant).await?;
        if json {
            print_json(incident.name, &report)?;
        }
        reports.push(report);
    }
    if !json {
        print_table(incident.name, incident.about, &reports);
    }
    for report in &reports {
        for broken in &report.broken {
            eprintln!("{} {}: BROKEN: {broken}", incident.name, report.variant);
        }
    }
    Ok(reports.iter().all(|report| report.broken.is_empty()))
}

/// Some incidents run their servers in processes of their own: this program again, told which by its first argument.
async fn serve() -> Option<Result<(), Error>> {
    let mut args = std::env::args().skip(1);
    if let Some(variant) = half_open::server_variant(std::env::args().skip(1)) {
        return Some(half_open::server::serve(variant).await);
    }
    if args.next().as_deref() == Some(gateway_retry::BRANCH) {
        return Some(gateway_retry::serve_branch(args).await);
    }
    None
}

#[tokio::main]
async fn main() -> ExitCode {
    if let Some(served) = serve().await {
        return match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    // It runs for as long as this is held.
    let _server = match store::choose(&options.store) {
        Ok(server) => server,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut code = ExitCode::SUCCESS;
    for incident in options.chosen {
        match run(incident, options.json).await {
            Ok(true) => {}
            Ok(false) => code = ExitCode::FAILURE,
            Err(error) => {
                eprintln!("{}: {error}", incident.name);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
