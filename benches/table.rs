//! Resident memory of an instance's own table at one million sessions; fails above what is promised for each.

mod support;

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("resident memory is read from /proc, so it can be measured on Linux only");
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::process::ExitCode;

    use mcp_session_guard::{
        session::{Fence, Incarnation, InstanceId, SessionId, SessionTerms},
        store::{
            Bury, Claim, ClaimReply, Claimed, Heartbeat, Lookup, Registered, SessionDirectory,
            StoreError, TakeOver, Terminated,
        },
    };

    use crate::support;

    const SESSIONS: usize = 1_000_000;
    /// Opened before the first measurement, so that what a process allocates once is not counted.
    const WARM: usize = 1_000;
    /// Bytes of resident memory for one session.
    const LIMIT: usize = 300;

    const INCARNATION: Incarnation = Incarnation::new(1, 1);
    const FENCE: Fence = Fence::new(INCARNATION, 1);

    /// Says yes and keeps nothing, so that only the instance's own memory is measured.
    struct Yes;

    impl SessionDirectory for Yes {
        async fn lookup(&self, _: &SessionId) -> Result<Lookup, StoreError> {
            Ok(Lookup::Absent)
        }

        async fn register(
            &self,
            _: &SessionId,
            _: &InstanceId,
            _: &SessionTerms,
        ) -> Result<Registered, StoreError> {
            Ok(Registered::Recorded(FENCE))
        }

        async fn claim(&self, claim: &Claim<'_>) -> Result<ClaimReply, StoreError> {
            let held = claim.sessions.iter().map(|_| Claimed::Held(FENCE));
            Ok(ClaimReply::new(INCARNATION, claim.lease, held.collect()))
        }

        async fn heartbeat(&self, _: &InstanceId) -> Result<Heartbeat, StoreError> {
            Ok(Heartbeat::new(INCARNATION, true))
        }

        async fn take_over(
            &self,
            _: &SessionId,
            _: Fence,
            _: &InstanceId,
        ) -> Result<TakeOver, StoreError> {
            Ok(TakeOver::Lost)
        }

        async fn bury(&self, _: &SessionId, _: Fence) -> Result<Bury, StoreError> {
            Ok(Bury::Lost)
        }

        async fn touch(
            &self,
            _: &InstanceId,
            _: &[SessionId],
        ) -> Result<Vec<SessionId>, StoreError> {
            Ok(Vec::new())
        }

        async fn terminate(
            &self,
            _: &SessionId,
            _: Option<Fence>,
        ) -> Result<Terminated, StoreError> {
            Ok(Terminated::Ended)
        }

        async fn leave(&self, _: &InstanceId) -> Result<(), StoreError> {
            Ok(())
        }
    }

    /// Resident memory in bytes.
    fn resident() -> Option<usize> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    }

    pub(crate) fn main() -> ExitCode {
        let runtime = support::runtime();
        let mut guard = runtime.block_on(support::owner(Yes, WARM));
        let before = resident();
        runtime.block_on(support::open(&mut guard, WARM..SESSIONS));
        let after = resident();
        let (Some(before), Some(after)) = (before, after) else {
            eprintln!("/proc/self/status does not say how much memory is resident");
            return ExitCode::FAILURE;
        };
        let each = after.saturating_sub(before).div_ceil(SESSIONS - WARM);
        println!(
            "{each} bytes of resident memory per session at {SESSIONS} sessions (limit {LIMIT})"
        );
        if each > LIMIT {
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}
