//! Tools that may run again, by declaration and as they say themselves.

use std::sync::Arc;

use http::StatusCode;
use mcp_session_guard::mcp::{Effect, ToolEffects};
use serde_json::json;

use crate::{
    Node, call, call_of, is_replay, keyed, memory, modern,
    support::{
        inner::{respond, stream},
        post,
    },
    with_header,
};

fn fails_once(node: &Node) {
    let first = std::sync::atomic::AtomicBool::new(true);
    node.inner.script(move |asked| {
        let failed = first.swap(false, std::sync::atomic::Ordering::SeqCst);
        let answer = match failed {
            true => respond(StatusCode::INTERNAL_SERVER_ERROR, ""),
            false => crate::answer(&asked.body, &json!({"done": true})),
        };
        async move { answer }
    });
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_may_run_again_does_after_an_unknown_outcome_and_no_other() {
    for (effect, runs) in [
        (Effect::ReadOnly, 2),
        (Effect::Idempotent, 2),
        (Effect::Mutating, 1),
    ] {
        let effects = Arc::new(ToolEffects::new().declare("pay", effect));
        let node = Node::with(&memory(), |layer| layer.with_effects(effects));
        fails_once(&node);
        assert_eq!(node.call("k", 1).await.status, 500);
        let again = node.call("k", 2).await;
        if runs == 2 {
            assert_eq!((again.status, is_replay(&again)), (200, false));
            assert!(is_replay(&node.call("k", 3).await));
        } else {
            assert_eq!(again.refusal(), (409, "idempotency_outcome_unknown"));
        }
        let asked = node.inner.take();
        assert_eq!(asked.len(), runs);
        let keys: Vec<_> = asked
            .iter()
            .map(|asked| asked.downstream.unwrap())
            .collect();
        assert!(keys.iter().all(|key| key.key() == keys[0].key()));
        let attempts: Vec<_> = keys.iter().map(|key| key.attempt()).collect();
        assert_eq!(attempts, (1..=runs as u32).collect::<Vec<_>>());
    }
}

const TOOLS: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"put","annotations":{"idempotentHint":true}},{"name":"pay"}]}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

#[tokio::test(start_paused = true)]
async fn effects_are_learned_from_the_servers_own_list_however_it_is_told() {
    for streamed in [false, true] {
        for era in ["2025-11-25", "2026-07-28"] {
            let effects = Arc::new(ToolEffects::new());
            let shared = Arc::clone(&effects);
            let node = Node::with(&memory(), |layer| {
                layer.with_effects(shared).learn_effects()
            });
            node.inner.script(move |_| async move {
                if !streamed {
                    return respond(StatusCode::OK, TOOLS);
                }
                let (tap, response) = stream();
                tap.event("1", TOOLS);
                response
            });
            let request = with_header(post(Some("s"), LIST), "mcp-protocol-version", era);
            let request = with_header(request, "mcp-method", "tools/list");
            let listed = node.send(request).await;
            assert!(listed.text.contains("idempotentHint"));
            assert_eq!(effects.of("put"), Effect::Idempotent, "{streamed} {era}");
            assert_eq!(effects.of("pay"), Effect::Mutating);
            fails_once(&node);
            node.send(keyed("k", call_of("put", &json!(1)))).await;
            let again = node.send(keyed("k", call_of("put", &json!(2)))).await;
            assert_eq!(again.status, 200);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_learned_unless_it_is_wanted() {
    let effects = Arc::new(ToolEffects::new());
    let shared = Arc::clone(&effects);
    let node = Node::with(&memory(), |layer| layer.with_effects(shared));
    node.inner
        .script(|_| async { respond(StatusCode::OK, TOOLS) });
    node.send(post(Some("s"), LIST)).await;
    assert_eq!(effects.of("put"), Effect::Mutating);
    let _ = (modern("k", call(1)), node);
}
