//! What an incident measured, as a table for people or as JSON for machines.

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    Unguarded,
    Guarded,
}

impl Variant {
    fn as_str(self) -> &'static str {
        match self {
            Self::Unguarded => "unguarded",
            Self::Guarded => "guarded",
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One variant of one incident.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) variant: Variant,
    /// In the order in which they are shown.
    pub(crate) figures: Vec<(&'static str, Figure)>,
    /// What the variant should have kept and did not, in words.
    pub(crate) broken: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Figure {
    Count(usize),
    /// `None` when nothing of the kind happened.
    Millis(Option<Duration>),
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => f.pad(&count.to_string()),
            Self::Millis(None) => f.pad("-"),
            Self::Millis(Some(time)) => f.pad(&format!("{:.1}", millis(*time))),
        }
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => count.serialize(serializer),
            Self::Millis(time) => time
                .map(|time| (millis(time) * 10.0).round() / 10.0)
                .serialize(serializer),
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// A report as one flat object.
struct Flat<'a>(&'a str, &'a Report);

impl Serialize for Flat<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(incident, report) = self;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("incident", incident)?;
        object.serialize_entry("variant", report.variant.as_str())?;
        for (name, figure) in &report.figures {
            object.serialize_entry(name, figure)?;
        }
        object.end()
    }
}

pub(crate) fn print_json(incident: &str, report: &Report) -> Result<(), Error> {
    println!("{}", serde_json::to_string(&Flat(incident, report))?);
    Ok(())
}

/// A row for each figure, a column for each variant.
pub(crate) fn print_table(incident: &str, about: &str, reports: &[Report]) {
    println!("\n{incident}: {about}\n");
    print!("{:24}", "");
    for report in reports {
        print!("{:>12}", report.variant);
    }
    println!();
    let rows = reports.first().map_or(&[][..], |report| &report.figures);
    for (row, (name, _)) in rows.iter().enumerate() {
        print!("{name:24}");
        for report in reports {
            print!("{:>12}", report.figures[row].1);
        }
        println!();
    }
}
