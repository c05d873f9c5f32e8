//! Clients that lose their connection, and end with everything exactly once.
//!
//! All of them resume a call's stream by themselves, and so nothing here goes through a resumption token. What a client
//! had is known before each cut: it has said so. What it misses is known too: the log has it.

use mcp_session_guard::store::Ending;
use serde_json::{Value, json};

use crate::{client::Client, driver::Driver, rig::Rig, support::cutter::Cut};

/// A call of three steps under way, of which its client has heard the first.
async fn begin(client: Client) -> (Rig, Driver, u64) {
    let rig = Rig::start().await;
    let mut driver = rig.open(client).await;
    driver.call("call", "work", json!({"steps": 3})).await;
    assert_eq!(driver.hear_step().await, 1);
    let call = rig.log.call().await;
    (rig, driver, call)
}

/// The answer comes, and comes once: the tool ran once, every answer left the transport once, the caller heard each
/// step that often, and the session serves on.
async fn ends(rig: &Rig, mut driver: Driver, steps: &[u64]) {
    let answer = driver.hear("result").await;
    assert_eq!(
        (&answer["text"], &answer["is_error"]),
        (&json!("run 1"), &json!(false))
    );
    rig.wire.quiet(Some(rig.log.standalone().await)).await;
    driver
        .call("after", "echo", json!({"text": "still here"}))
        .await;
    assert_eq!(driver.hear("result").await["text"], "still here");
    driver.close().await;
    assert_eq!(driver.said("result", "text"), ["run 1", "still here"]);
    assert_eq!(driver.steps(), steps);
    assert_eq!((rig.worker.runs(), rig.wire.openings()), (1, 1));
    // No cut came after the answer had been sent.
    assert_eq!(rig.wire.times_sent("run 1"), 1);
    let resumes = rig.wire.resumes(rig.log.call().await);
    assert!(resumes.iter().all(|one| one.status == 200), "{resumes:?}");
}

/// The call goes on where its client left it, once it is back.
async fn cut_once(client: Client) {
    let (rig, driver, call) = begin(client).await;
    rig.cutter.cut(Cut::Close).await;
    rig.wire.resumed(call, 1).await;
    rig.worker.allow(3);
    ends(&rig, driver, &[1, 2, 3]).await;
    assert_eq!(rig.wire.resumes(call).len(), 1);
}

/// The second cut hits the stream that resumed the first.
async fn cut_twice(client: Client) {
    let (rig, mut driver, call) = begin(client).await;
    rig.cutter.cut(Cut::Close).await;
    rig.wire.resumed(call, 1).await;
    rig.worker.allow(1);
    assert_eq!(driver.hear_step().await, 2);
    rig.cutter.cut(Cut::Reset).await;
    rig.wire.resumed(call, 2).await;
    rig.worker.allow(3);
    let resumes = rig.wire.resumes(call);
    let from: Vec<_> = resumes
        .iter()
        .map(|one| one.cursor.clone().unwrap().seq)
        .collect();
    if client.repeats_its_first_cursor() {
        // It asks for the second step again, and gets what it asks for; the answer still comes once.
        assert_eq!(from[0], from[1]);
        ends(&rig, driver, &[1, 2, 2, 3]).await;
    } else {
        assert_eq!(from[0].next(), from[1]);
        ends(&rig, driver, &[1, 2, 3]).await;
    }
}

/// The tool finishes while nobody is there: the answer is in the log and nowhere else.
async fn answered_while_away(client: Client) {
    let (rig, driver, call) = begin(client).await;
    rig.cutter.hold();
    rig.cutter.cut(Cut::Reset).await;
    // The server has seen that its client is gone.
    rig.wire.quiet(Some(rig.log.standalone().await)).await;
    rig.worker.allow(3);
    let answered = |stream: &crate::log::Recorded| stream.ending == Some(Ending::Answered);
    rig.log.until(call, "an answer in the log", answered).await;
    assert!(rig.wire.resumes(call).is_empty());
    rig.cutter.let_through();
    ends(&rig, driver, &[1, 2, 3]).await;
    assert_eq!(rig.wire.resumes(call).len(), 1);
}

/// What the server says of its own accord while the session's own stream is cut.
async fn told_while_away(client: Client) {
    let rig = Rig::start().await;
    let mut driver = rig.open(client).await;
    let own = rig.log.standalone().await;
    rig.worker.say("before").await;
    assert_eq!(driver.hear("heard").await["text"], "before");
    rig.cutter.hold();
    rig.cutter.cut(Cut::Close).await;
    let known = rig.log.events(own);
    rig.worker.say("meanwhile").await;
    let more = |stream: &crate::log::Recorded| stream.events > known;
    rig.log.until(own, "more in the log", more).await;
    assert!(rig.wire.resumes(own).is_empty());
    rig.cutter.let_through();
    assert_eq!(driver.hear("heard").await["text"], "meanwhile");
    rig.worker.say("after").await;
    assert_eq!(driver.hear("heard").await["text"], "after");
    driver
        .call("after", "echo", json!({"text": "still here"}))
        .await;
    assert_eq!(driver.hear("result").await["text"], "still here");
    driver.close().await;
    let heard: Vec<Value> = driver.said("heard", "text");
    assert_eq!(heard, ["before", "meanwhile", "after"]);
    assert_eq!((rig.wire.resumes(own).len(), rig.wire.openings()), (1, 1));
}

macro_rules! with_each_client {
    ($($name:ident = $client:ident),+: $scenarios:tt) => {
        $(with_each_client!(@ $name $client $scenarios);)+
    };
    (@ $name:ident $client:ident [$($scenario:ident),+ $(,)?]) => {
        mod $name {
            use crate::client::Client;
            $(
                #[tokio::test]
                async fn $scenario() {
                    super::$scenario(Client::$client).await;
                }
            )+
        }
    };
}

with_each_client!(
    rmcp = Rmcp, typescript_1 = TypeScript1, typescript_2 = TypeScript2, python_1 = Python1, python_2 = Python2:
    [cut_once, cut_twice, answered_while_away, told_while_away]
);
