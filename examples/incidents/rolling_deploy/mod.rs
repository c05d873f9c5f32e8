//! `rolling_deploy`: three instances are replaced one by one while each streams numbered events. Their clients come
//! back to other instances, and count what they hear twice and what they never hear.

mod client;
mod front;

use std::sync::Arc;

use mcp_session_guard::{
    instance::Instance,
    resume_guard::LogReach,
    store::{MemoryStore, SharedEvents},
};
use tokio::{sync::watch, task::JoinSet};

use self::{
    client::{Client, Story},
    front::Jobs,
};
use crate::{
    Error,
    balancer::Balancer,
    counter::Runs,
    guarded::{self, Shared},
    pod::Pod,
    report::{Figure::Count, Report, Variant},
    store,
};

const INSTANCES: usize = 3;
/// At each replacement.
const CLIENTS: usize = 12;
/// How many numbers a call tells.
const NUMBERS: u32 = 100;
/// Every other client of the outgoing instance loses its connection after so many of them ..
const LEAVE: u32 = 5;
/// .. and the instance goes on for so many more at least.
const UNHEARD: u32 = 12;

#[derive(Clone, Copy, PartialEq, Eq)]
enum SetUp {
    /// Sessions are shared, buffers are not, and nobody minds.
    Unguarded,
    /// Guarded, each instance with a log of its own.
    Local,
    /// Guarded, one log for all.
    Shared,
}

pub(crate) async fn run(variant: Variant) -> Result<Report, Error> {
    let set_ups: &[_] = match variant {
        Variant::Unguarded => &[SetUp::Unguarded],
        Variant::Guarded => &[SetUp::Local, SetUp::Shared],
    };
    let mut stories = Vec::new();
    for &set_up in set_ups {
        let buffers = match set_up {
            SetUp::Shared => "shared",
            SetUp::Unguarded | SetUp::Local => "local",
        };
        eprintln!("rolling_deploy {variant}: {INSTANCES} replacements, {buffers} buffers");
        let heard = Deploy::start(set_up).await?.roll().await?;
        stories.extend(heard.into_iter().map(|story| (set_up, story)));
    }
    Ok(report(variant, &stories))
}

struct Deploy {
    set_up: SetUp,
    shared: Shared,
    jobs: Jobs,
    events: SharedEvents,
    pods: Vec<(Pod, Option<Instance>)>,
}

impl Deploy {
    async fn start(set_up: SetUp) -> Result<Self, Error> {
        let stores = store::open().await?;
        let mut deploy = Self {
            set_up,
            shared: Shared {
                directory: stores.directory,
                handshakes: Arc::default(),
                runs: Runs::default(),
            },
            jobs: Jobs::default(),
            events: stores.events,
            pods: Vec::new(),
        };
        for number in 1..=INSTANCES {
            let pod = deploy.pod(&format!("old-{number}")).await?;
            deploy.pods.push(pod);
        }
        Ok(deploy)
    }

    async fn pod(&self, name: &str) -> Result<(Pod, Option<Instance>), Error> {
        let (reach, events) = match self.set_up {
            SetUp::Unguarded => {
                return Ok((front::start(name, &self.shared, &self.jobs).await?, None));
            }
            SetUp::Local => (LogReach::Local, SharedEvents::new(MemoryStore::new())),
            SetUp::Shared => (LogReach::Shared, self.events.clone()),
        };
        let (pod, instance) = guarded::start(name, &self.shared, reach, events).await?;
        Ok((pod, Some(instance)))
    }

    /// Replaces one instance after the other.
    async fn roll(mut self) -> Result<Vec<Story>, Error> {
        let balancer = Balancer::start(self.pods.iter().map(|(pod, _)| pod)).await?;
        let mut stories = Vec::new();
        for number in 0..INSTANCES {
            let mut clients = Vec::new();
            for client in 0..CLIENTS {
                let run = format!("client-{number}-{client}");
                clients.push(Client::start(&balancer.address, run).await?);
            }
            let incoming = self.pod(&format!("new-{}", number + 1)).await?;
            let outgoing = std::mem::replace(&mut self.pods[number], incoming);
            balancer.replace(outgoing.0.address, self.pods[number].0.address);
            stories.extend(self.replace(outgoing, clients).await?);
        }
        drop(balancer);
        for (pod, _) in self.pods {
            pod.crash().await?;
        }
        Ok(stories)
    }

    /// Ends an instance under its clients.
    async fn replace(
        &self,
        (pod, instance): (Pod, Option<Instance>),
        mut clients: Vec<Client>,
    ) -> Result<Vec<Story>, Error> {
        let here = clients
            .iter_mut()
            .filter(|client| client.served_by() == &*pod.name);
        let mut left = Vec::new();
        for client in here.step_by(2) {
            client.leaves_after = Some(LEAVE);
            left.push(client.run.clone());
        }
        let (come_back, back) = watch::channel(false);
        let mut listening: JoinSet<_> = clients
            .into_iter()
            .map(|client| client.listen(back.clone()))
            .collect();
        for run in &left {
            self.shared.runs.reach(run, LEAVE + UNHEARD).await?;
        }
        if let Some(instance) = instance {
            // A planned end: calls end first, also those whose client has left.
            let retired = instance.retire().await;
            if retired.unfinished_calls() > 0 {
                return Err(format!("{} calls were cut", retired.unfinished_calls()).into());
            }
        }
        pod.crash().await?;
        come_back.send_replace(true);
        let mut stories = Vec::new();
        while let Some(listened) = listening.join_next().await {
            stories.push(listened??);
        }
        Ok(stories)
    }
}

fn report(variant: Variant, stories: &[(SetUp, Story)]) -> Report {
    let sum = |of: fn(&Story) -> usize| stories.iter().map(|(_, story)| of(story)).sum::<usize>();
    let count = |set_up: &[SetUp], of: fn(&Story) -> bool| {
        let counted = stories
            .iter()
            .filter(|(from, story)| set_up.contains(from) && of(story));
        counted.count()
    };
    let (local, shared) = ([SetUp::Unguarded, SetUp::Local], [SetUp::Shared]);
    let all = [SetUp::Unguarded, SetUp::Local, SetUp::Shared];
    let duplicates = sum(|story| story.duplicates);
    let gaps = sum(|story| story.gaps);
    let resumed = count(&all, |story| story.resumed);
    let exact = count(&all, Story::exact);
    let refused = count(&all, |story| story.refused);
    let broken = match variant {
        Variant::Unguarded if duplicates.min(gaps) == 0 => {
            vec!["nothing was heard twice, or nothing was missed".into()]
        }
        Variant::Guarded
            if duplicates + gaps > 0
                || count(&shared, Story::exact) == 0
                || count(&local, |story| story.refused) == 0
                || resumed != exact + refused =>
        {
            vec!["a resume was neither exact nor refused, or there was none of either".into()]
        }
        _ => Vec::new(),
    };
    Report {
        variant,
        figures: vec![
            ("replacements", Count(INSTANCES)),
            ("streams", Count(stories.len())),
            ("resumes", Count(resumed)),
            ("duplicates_delivered", Count(duplicates)),
            ("gaps_delivered", Count(gaps)),
            ("resumes_exact", Count(exact)),
            ("resumes_exact_local", Count(count(&local, Story::exact))),
            ("resumes_exact_shared", Count(count(&shared, Story::exact))),
            ("resumes_refused", Count(refused)),
            (
                "resumes_refused_local",
                Count(count(&local, |story| story.refused)),
            ),
            (
                "resumes_refused_shared",
                Count(count(&shared, |story| story.refused)),
            ),
        ],
        broken,
    }
}
