//! The directory on Redis says what the embedded one says, whatever is asked of both in whatever order; and the
//! ownership model explores the embedded one exhaustively.

use std::{sync::Arc, time::Duration};

use mcp_session_guard::{
    clock::ManualClock,
    session::{
        Epoch, Fence, Incarnation, InstanceId, Principal, Residency, SessionId, SessionRecord,
        SessionTerms,
    },
    store::{
        Claim, Claimed, ClaimedSession, Lookup, MemoryConfig, MemoryStore, RedisStore, Registered,
        SessionDirectory, Standing, StoreError, TakeOver,
    },
};
use proptest::{
    collection::vec,
    prelude::*,
    sample::Index,
    test_runner::{Config, TestRunner},
};

use crate::server::Server;

const MAX_LEASE: Duration = Duration::from_secs(10);
const INSTANCES: usize = 3;
const SESSIONS: usize = 4;

#[derive(Debug, Clone)]
enum Op {
    Lookup(usize),
    Register(usize, usize, usize),
    Claim {
        who: usize,
        lease: u64,
        unbroken: bool,
        sessions: Vec<(usize, Index, usize)>,
        tombstones: Vec<usize>,
    },
    Heartbeat(usize),
    TakeOver(usize, Index, usize),
    Bury(usize, Index),
    Touch(usize, Vec<usize>),
    Terminate(usize, Option<Index>),
    Leave(usize),
    Pass(u64),
    /// It restarts empty.
    Loses,
    /// Another process goes on with what there is.
    FailsOver,
}

fn op() -> impl Strategy<Value = Op> {
    let (who, id, terms) = (0..INSTANCES, 0..SESSIONS, 0..3usize);
    let fence = any::<Index>;
    let claimed = vec((id.clone(), fence(), terms.clone()), 0..4);
    prop_oneof![
        6 => id.clone().prop_map(Op::Lookup),
        6 => (id.clone(), who.clone(), terms).prop_map(|(id, who, terms)| Op::Register(id, who, terms)),
        8 => (who.clone(), 1..14u64, any::<bool>(), claimed, vec(id.clone(), 0..2)).prop_map(
            |(who, lease, unbroken, sessions, tombstones)| Op::Claim { who, lease, unbroken, sessions, tombstones }
        ),
        4 => who.clone().prop_map(Op::Heartbeat),
        4 => (id.clone(), fence(), who.clone()).prop_map(|(id, fence, who)| Op::TakeOver(id, fence, who)),
        4 => (id.clone(), fence()).prop_map(|(id, fence)| Op::Bury(id, fence)),
        3 => (who.clone(), vec(id.clone(), 0..4)).prop_map(|(who, ids)| Op::Touch(who, ids)),
        3 => (id, proptest::option::of(fence())).prop_map(|(id, fence)| Op::Terminate(id, fence)),
        1 => who.prop_map(Op::Leave),
        6 => (1..8u64).prop_map(Op::Pass),
        1 => Just(Op::Loses),
        1 => Just(Op::FailsOver),
    ]
}

/// Both directories, and what means the same in each.
struct Pair<'a> {
    server: &'a Server,
    redis: RedisStore,
    memory: MemoryStore,
    clock: Arc<ManualClock>,
    instances: Vec<InstanceId>,
    ids: Vec<SessionId>,
    lives: Vec<(Incarnation, Incarnation)>,
    fences: Vec<(Fence, Fence)>,
}

type Outcome = Result<(), TestCaseError>;

impl<'a> Pair<'a> {
    async fn start(server: &'a Server) -> Self {
        server.command(&["FLUSHALL"]);
        let config = server.config().with_max_lease(MAX_LEASE);
        let redis = RedisStore::connect(config).await.expect("a store");
        let clock = Arc::new(ManualClock::new());
        let config = MemoryConfig::default().with_max_lease(MAX_LEASE);
        let pair = Self {
            server,
            redis,
            memory: MemoryStore::with_clock(config, Arc::clone(&clock)),
            clock,
            instances: (0..INSTANCES)
                .map(|_| InstanceId::new("i", Epoch::mint().expect("randomness")))
                .collect(),
            ids: (0..SESSIONS)
                .map(|n| SessionId::parse(format!("session-{n}")).expect("an id"))
                .collect(),
            lives: Vec::new(),
            fences: vec![(
                Fence::new(Incarnation::new(0, 0), 7),
                Fence::new(Incarnation::new(0, 0), 7),
            )],
        };
        pair.begin().await;
        server.pass(MAX_LEASE);
        pair
    }

    /// Has the present incarnation begin, since no time passes before.
    async fn begin(&self) {
        let nobody = InstanceId::new("nobody", Epoch::mint().expect("randomness"));
        self.redis.heartbeat(&nobody).await.expect("heartbeat");
    }

    fn same_life(&mut self, memory: Incarnation, redis: Incarnation) -> Outcome {
        let known = |life: &&(_, _)| life.0 == memory || life.1 == redis;
        match self.lives.iter().find(known) {
            Some(life) => prop_assert_eq!(*life, (memory, redis)),
            None => {
                for (older, other) in &self.lives {
                    prop_assert_eq!(memory > *older, redis > *other);
                }
                self.lives.push((memory, redis));
            }
        }
        Ok(())
    }

    fn same_fence(&mut self, memory: Fence, redis: Fence) -> Outcome {
        prop_assert_eq!(memory.counter(), redis.counter());
        self.same_life(memory.incarnation(), redis.incarnation())?;
        if !self.fences.contains(&(memory, redis)) {
            self.fences.push((memory, redis));
        }
        Ok(())
    }

    fn same_record(&mut self, memory: &SessionRecord, redis: &SessionRecord) -> Outcome {
        prop_assert_eq!(&memory.owner, &redis.owner);
        prop_assert_eq!(&memory.terms, &redis.terms);
        self.same_fence(memory.fence, redis.fence)
    }

    async fn run(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Lookup(id) => {
                let id = &self.ids[*id];
                let both = both(self.memory.lookup(id).await, self.redis.lookup(id).await)?;
                match both {
                    Some((Lookup::Owned { record: m, .. }, Lookup::Owned { record: r, .. }))
                    | Some((Lookup::Orphaned(m), Lookup::Orphaned(r))) => {
                        self.same_record(&m, &r)?;
                    }
                    Some((m, r)) => prop_assert_eq!(m, r),
                    None => {}
                }
            }
            Op::Register(id, who, kind) => {
                let (id, who, terms) = (&self.ids[*id], &self.instances[*who], terms(*kind));
                let both = both(
                    self.memory.register(id, who, &terms).await,
                    self.redis.register(id, who, &terms).await,
                )?;
                match both {
                    Some((Registered::Recorded(m), Registered::Recorded(r))) => {
                        self.same_fence(m, r)?;
                    }
                    Some((m, r)) => prop_assert_eq!(m, r),
                    None => {}
                }
            }
            Op::Claim {
                who,
                lease,
                unbroken,
                sessions,
                tombstones,
            } => {
                let who = self.instances[*who].clone();
                let (mut of_memory, mut of_redis) = (Vec::new(), Vec::new());
                for (id, fence, kind) in sessions {
                    let (m, r) = self.fences[fence.index(self.fences.len())];
                    let claimed =
                        |fence| ClaimedSession::new(self.ids[*id].clone(), fence, terms(*kind));
                    of_memory.push(claimed(m));
                    of_redis.push(claimed(r));
                }
                let tombstones: Vec<_> =
                    tombstones.iter().map(|id| self.ids[*id].clone()).collect();
                let mut claim = Claim::new(&who, Duration::from_secs(*lease));
                claim.tombstones = &tombstones;
                if *unbroken {
                    claim.standing = Standing::Unbroken;
                }
                claim.sessions = &of_memory;
                let m = self.memory.claim(&claim).await;
                claim.sessions = &of_redis;
                let r = self.redis.claim(&claim).await;
                let Some((m, r)) = both(m, r)? else {
                    return Ok(());
                };
                prop_assert_eq!(m.lease, r.lease);
                self.same_life(m.incarnation, r.incarnation)?;
                for pair in m.sessions.into_iter().zip(r.sessions) {
                    match pair {
                        (Claimed::Held(m), Claimed::Held(r)) => self.same_fence(m, r)?,
                        (m, r) => prop_assert_eq!(m, r),
                    }
                }
            }
            Op::Heartbeat(who) => {
                let who = &self.instances[*who];
                let both = both(
                    self.memory.heartbeat(who).await,
                    self.redis.heartbeat(who).await,
                )?;
                if let Some((m, r)) = both {
                    prop_assert_eq!(m.extended, r.extended);
                    self.same_life(m.incarnation, r.incarnation)?;
                }
            }
            Op::TakeOver(id, fence, who) => {
                let (m, r) = self.fences[fence.index(self.fences.len())];
                let (id, who) = (&self.ids[*id], &self.instances[*who]);
                let both = both(
                    self.memory.take_over(id, m, who).await,
                    self.redis.take_over(id, r, who).await,
                )?;
                match both {
                    Some((TakeOver::Taken(m), TakeOver::Taken(r))) => self.same_fence(m, r)?,
                    Some((m, r)) => prop_assert_eq!(m, r),
                    None => {}
                }
            }
            Op::Bury(id, fence) => {
                let (m, r) = self.fences[fence.index(self.fences.len())];
                let id = &self.ids[*id];
                equal(self.memory.bury(id, m).await, self.redis.bury(id, r).await)?;
            }
            Op::Touch(who, ids) => {
                let ids: Vec<_> = ids.iter().map(|id| self.ids[*id].clone()).collect();
                let who = &self.instances[*who];
                equal(
                    self.memory.touch(who, &ids).await,
                    self.redis.touch(who, &ids).await,
                )?;
            }
            Op::Terminate(id, fence) => {
                let fence = fence.map(|fence| self.fences[fence.index(self.fences.len())]);
                let id = &self.ids[*id];
                equal(
                    self.memory.terminate(id, fence.map(|both| both.0)).await,
                    self.redis.terminate(id, fence.map(|both| both.1)).await,
                )?;
            }
            Op::Leave(who) => {
                let who = &self.instances[*who];
                equal(self.memory.leave(who).await, self.redis.leave(who).await)?;
            }
            Op::Pass(seconds) => {
                let time = Duration::from_secs(*seconds);
                self.clock.advance(time);
                self.server.pass(time);
            }
            Op::Loses => {
                self.memory.lose_memory();
                self.server.command(&["FLUSHALL"]);
                // A process needs longer to start.
                self.server.next_millisecond();
                self.begin().await;
            }
            Op::FailsOver => {
                self.memory.fail_over_to(self.memory.snapshot());
                let marker = "{mcp-session-guard}:marker";
                self.server.command(&["HSET", marker, "run", "another"]);
                self.begin().await;
            }
        }
        Ok(())
    }
}

fn terms(kind: usize) -> SessionTerms {
    match kind {
        0 => SessionTerms::new(Residency::Pinned),
        1 => SessionTerms::new(Residency::Externalized)
            .with_retention(Duration::from_secs(15))
            .with_principal(Principal::new("someone \"quoted\" \u{e9}")),
        _ => SessionTerms::new(Residency::Externalized),
    }
}

/// Both answers, or nothing where both failed alike.
pub fn both<T: std::fmt::Debug>(
    memory: Result<T, StoreError>,
    redis: Result<T, StoreError>,
) -> Result<Option<(T, T)>, TestCaseError> {
    match (memory, redis) {
        (Ok(m), Ok(r)) => Ok(Some((m, r))),
        (Err(m), Err(r)) if m.kind() == r.kind() => Ok(None),
        (m, r) => Err(TestCaseError::fail(format!("memory: {m:?}, redis: {r:?}"))),
    }
}

pub fn equal<T: std::fmt::Debug + PartialEq>(
    memory: Result<T, StoreError>,
    redis: Result<T, StoreError>,
) -> Outcome {
    if let Some((m, r)) = both(memory, redis)? {
        prop_assert_eq!(m, r);
    }
    Ok(())
}

#[test]
fn it_says_what_the_embedded_directory_says() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let config = Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let told = TestRunner::new(config).run(&vec(op(), 1..50), |ops| {
        runtime.block_on(async {
            let mut pair = Pair::start(&server).await;
            for op in &ops {
                pair.run(op).await?;
            }
            Ok(())
        })
    });
    if let Err(error) = told {
        panic!("{error}");
    }
}
