//! Each row of the verdict table, once.

use http::{HeaderValue, Method, Request};
use mcp_session_guard::{
    affinity_guard::{Disposition, SelfContained},
    rejection::{Reason, RefusalStyle},
    store::StoreErrorKind,
};
use tower::ServiceExt;

use crate::{
    Node,
    support::{
        Answer, CALL, INITIALIZE, LEASE, Sent, Stage, delete, directory::Fault, get, post, request,
    },
};

const PING: &str = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;

fn modern(mut request: Request<Sent>) -> Request<Sent> {
    let version = HeaderValue::from_static("2026-07-28");
    request
        .headers_mut()
        .insert("mcp-protocol-version", version);
    request
}

#[tokio::test(start_paused = true)]
async fn the_owner_serves_and_asks_nobody() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let id = node.open().await;
    node.directory.take_calls("lookup");
    for (request, method) in [
        (post(Some(&id), CALL), Method::POST),
        (get(&id), Method::GET),
    ] {
        assert_eq!(node.send(request).await.status, 200);
        let asked = node.inner.take();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].method, method);
        assert_eq!(asked[0].session.as_deref(), Some(&*id));
        assert_eq!(asked[0].disposition, None);
    }
    assert_eq!(node.directory.take_calls("lookup"), 0);
    assert_eq!(node.directory.take_calls("register"), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_session_header_it_passes_unless_strict() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    for request in [
        post(None, PING),
        post(None, "not json"),
        request(Method::GET, None, ""),
        request(Method::DELETE, None, ""),
    ] {
        assert!(node.send(request).await.status < 300);
    }
    assert_eq!(node.inner.take().len(), 4);
    let strict = Node::with(&stage, "b", |layer| layer.strict()).await;
    let refused = strict.send(post(None, PING)).await;
    assert_eq!(refused.refusal(), (400, "session_required"));
    assert_eq!(refused.json()["id"], "p");
    let refused = strict.send(request(Method::GET, None, "")).await;
    assert_eq!(refused.refusal(), (400, "session_required"));
    assert!(strict.inner.take().is_empty());
    strict.open().await;
    assert_eq!(strict.send(modern(post(None, PING))).await.status, 200);
    assert_eq!(
        strict.send(request(Method::OPTIONS, None, "")).await.status,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn options_and_head_pass_whatever_they_carry() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    for method in [Method::OPTIONS, Method::HEAD] {
        for session in ["nobody", "two words", ""] {
            let answer = node.send(request(method.clone(), Some(session), "")).await;
            assert_eq!(answer.status, 200);
        }
    }
    assert_eq!(node.inner.take().len(), 6);
    // Other methods are guarded like a GET.
    let answer = node.send(request(Method::PUT, Some("nobody"), CALL)).await;
    assert_eq!(answer.refusal(), (404, "session_not_found"));
}

#[tokio::test(start_paused = true)]
async fn a_modern_request_loses_a_stray_session_header_and_nothing_else() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let id = node.open().await;
    let named = |body: &'static str, method: &'static str| {
        let mut request = modern(post(Some(&id), body));
        let method = HeaderValue::from_static(method);
        request.headers_mut().insert("mcp-method", method);
        request
    };
    let in_body = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    for request in [
        named(CALL, "tools/call"),
        modern(post(Some(&id), CALL)),
        modern(get(&id)),
        modern(delete(&id)),
        modern(post(Some("two words"), CALL)),
        // By its body alone, at an instance that does not own the session it names.
        post(Some("somebody-elses"), in_body),
    ] {
        let method = request.method().clone();
        assert!(node.send(request).await.status < 300);
        let asked = node.inner.take();
        assert_eq!((asked.len(), &asked[0].method), (1, &method));
        assert_eq!(asked[0].session, None);
    }
    assert_eq!(node.directory.take_calls("lookup"), 0);
    assert_eq!(node.directory.take_calls("terminate"), 0);
    assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_may_be_read_either_way_is_legacy() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    let mut twice = modern(post(Some("nobody"), CALL));
    let legacy = HeaderValue::from_static("2025-06-18");
    twice.headers_mut().append("mcp-protocol-version", legacy);
    assert_eq!(node.send(twice).await.refusal(), (404, "session_not_found"));
    assert!(node.inner.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn initialize_is_legacy_whatever_version_it_claims() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    for hint in [None, Some("initialize")] {
        let mut request = modern(post(None, INITIALIZE));
        if let Some(hint) = hint {
            let hint = HeaderValue::from_static(hint);
            request.headers_mut().insert("mcp-method", hint);
        }
        let answer = node.send(request).await;
        assert_eq!(node.directory.take_calls("register"), 1);
        let id = answer.session().to_owned();
        assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_a_lying_request_opens_is_registered_all_the_same() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    // Says that it calls a tool, so nobody looks into it, and is an `initialize`.
    let mut request = modern(post(None, INITIALIZE));
    let lie = HeaderValue::from_static("tools/call");
    request.headers_mut().insert("mcp-method", lie);
    let id = node.send(request).await.session().to_owned();
    assert_eq!(node.directory.take_calls("register"), 1);
    assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_fresh_start_does_not_touch_the_session_it_names() {
    let stage = Stage::set();
    let (node, other) = (
        Node::start(&stage, "a").await,
        Node::start(&stage, "b").await,
    );
    let id = node.open().await;
    for stale in [&*id, "never-was"] {
        let answer = other.send(post(Some(stale), INITIALIZE)).await;
        assert_eq!(answer.status, 200);
        assert_ne!(answer.session(), stale);
        assert_eq!(other.inner.take()[0].session, None);
    }
    assert_eq!(other.directory.take_calls("lookup"), 0);
    assert_eq!(node.send(post(Some(&id), CALL)).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn what_was_declared_self_contained_passes_without_its_session() {
    let stage = Stage::set();
    let declared = || SelfContained::new().method("ping").tool("convert");
    let owner = Node::with(&stage, "a", |layer| layer.stateless_for(declared())).await;
    let node = Node::with(&stage, "b", |layer| layer.stateless_for(declared())).await;
    let id = owner.open().await;
    let convert = CALL.replace("append", "convert");
    node.directory
        .set_all(Fault::Fails(StoreErrorKind::Unavailable));
    for body in [PING.to_owned(), convert, format!("[{PING}]")] {
        assert_eq!(node.send(post(Some(&id), body.clone())).await.status, 200);
        let asked = node.inner.take();
        assert_eq!(asked[0].session, None);
        assert_eq!(asked[0].disposition, Some(Disposition::Stateless));
        assert_eq!(asked[0].body, body);
        // At its owner it is an ordinary request of the session.
        assert_eq!(owner.send(post(Some(&id), body)).await.status, 200);
        let asked = owner.inner.take();
        assert_eq!(asked[0].session.as_deref(), Some(&*id));
        assert_eq!(asked[0].disposition, None);
    }
    let mixed = format!("[{PING},{CALL}]");
    for body in [CALL, &mixed] {
        let refused = node.send(post(Some(&id), body.to_owned())).await;
        assert_eq!(
            refused.header("mcp-guard-reason"),
            Some("session_unconfirmed")
        );
    }
    assert!(node.inner.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_live_instance_owns_it() {
    let stage = Stage::set();
    let (owner, node) = (
        Node::start(&stage, "a").await,
        Node::start(&stage, "b").await,
    );
    let id = owner.open().await;
    for request in [post(Some(&id), CALL), get(&id), delete(&id)] {
        let posted = request.method() == Method::POST;
        let refused = node.send(request).await;
        assert_eq!(refused.refusal(), (409, "session_reassigned"));
        let id = refused.json()["id"].clone();
        assert_eq!(
            id,
            if posted {
                7.into()
            } else {
                serde_json::Value::Null
            }
        );
        assert_eq!(refused.json()["error"]["data"]["action"], "reroute");
        assert_eq!(refused.header("mcp-guard-owner"), None);
    }
    assert!(node.inner.take().is_empty());
    assert_eq!(owner.send(post(Some(&id), CALL)).await.status, 200);
    let hinting = Node::with(&stage, "c", |layer| layer.with_owner_hint()).await;
    let refused = hinting.send(get(&id)).await;
    assert_eq!(refused.header("mcp-guard-owner"), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_pinned_session_of_a_lapsed_owner_is_buried_and_then_told_gone() {
    let stage = Stage::set();
    let (owner, node) = (
        Node::start(&stage, "a").await,
        Node::start(&stage, "b").await,
    );
    let id = owner.open().await;
    owner.crash();
    let refused = node.send(post(Some(&id), CALL)).await;
    assert_eq!(refused.refusal(), (409, "session_reassigned"));
    tokio::time::sleep(LEASE).await;
    for request in [post(Some(&id), CALL), get(&id), delete(&id)] {
        let refused = node.send(request).await;
        assert_eq!(refused.refusal(), (404, "session_not_found"));
        assert_eq!(refused.json()["id"], serde_json::Value::Null);
        assert_eq!(refused.json()["error"]["data"]["action"], "reinitialize");
    }
    assert_eq!(node.directory.take_calls("bury"), 1);
    assert_eq!(node.directory.take_calls("lookup"), 4);
    assert_eq!(node.instance.figures().sessions_not_found, 3);
    assert!(node.inner.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_terminated_or_absent_is_gone() {
    let stage = Stage::set();
    let (owner, node) = (
        Node::start(&stage, "a").await,
        Node::start(&stage, "b").await,
    );
    let id = owner.open().await;
    assert_eq!(owner.send(delete(&id)).await.status, 204);
    assert_eq!(owner.inner.take()[0].method, Method::DELETE);
    for id in [&*id, "never-was"] {
        for node in [&owner, &node] {
            let refused = node.send(post(Some(id), CALL)).await;
            assert_eq!(refused.refusal(), (404, "session_not_found"));
        }
    }
    let lenient = Node::with(&stage, "c", |layer| layer.absent_goes_stateless()).await;
    assert_eq!(
        lenient.send(post(Some("never-was"), CALL)).await.status,
        200
    );
    assert_eq!(
        lenient.inner.take()[0].disposition,
        Some(Disposition::Stateless)
    );
    // Never what was ended, and never a stream.
    assert_eq!(lenient.send(post(Some(&id), CALL)).await.status, 404);
    assert_eq!(lenient.send(get("never-was")).await.status, 404);
    assert!(lenient.inner.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_does_not_say_is_a_503_within_the_deadline() {
    let stage = Stage::set();
    let node = Node::start(&stage, "a").await;
    for fault in [
        Fault::Hangs,
        Fault::Fails(StoreErrorKind::Unavailable),
        Fault::Fails(StoreErrorKind::Corrupt),
        Fault::Fails(StoreErrorKind::Recovering),
    ] {
        node.directory.set("lookup", fault);
        let before = tokio::time::Instant::now();
        for request in [post(Some("s"), CALL), get("s"), delete("s")] {
            let refused = node.send(request).await;
            assert_eq!(refused.refusal(), (503, "session_unconfirmed"));
            assert_eq!(refused.header("retry-after"), Some("1"));
        }
        assert!(before.elapsed() <= std::time::Duration::from_millis(3 * 250 + 10));
    }
    assert!(node.inner.take().is_empty());
    assert_eq!(node.instance.figures().sessions_not_found, 0);
}

#[tokio::test(start_paused = true)]
async fn in_band_the_same_is_said_with_200_and_only_to_requests() {
    let stage = Stage::set();
    let in_band = |layer: mcp_session_guard::affinity_guard::AffinityGuardLayer| {
        layer.with_refusal_style(RefusalStyle::InBand)
    };
    let node = Node::with(&stage, "a", in_band).await;
    let response = node
        .guard
        .clone()
        .oneshot(post(Some("never-was"), CALL))
        .await
        .unwrap();
    let reason = response.extensions().get::<Reason>().copied();
    assert_eq!(reason, Some(Reason::SessionNotFound));
    let refused = Answer::read(response).await;
    assert_eq!(refused.refusal(), (200, "session_not_found"));
    assert_eq!(refused.json()["id"], 7);
    let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#;
    let answered = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    for request in [post(Some("x"), note), post(Some("x"), answered), get("x")] {
        assert_eq!(node.send(request).await.status, 404);
    }
}

#[tokio::test(start_paused = true)]
async fn another_principal_is_told_what_an_unknown_session_is_told() {
    let stage = Stage::set();
    let bind = |layer: mcp_session_guard::affinity_guard::AffinityGuardLayer| {
        layer.with_principal(|parts| Some(parts.headers.get("x-user")?.to_str().ok()?.into()))
    };
    let (owner, node) = (
        Node::with(&stage, "a", bind).await,
        Node::with(&stage, "b", bind).await,
    );
    let by = |mut request: Request<Sent>, user: &'static str| {
        let user = HeaderValue::from_static(user);
        request.headers_mut().insert("x-user", user);
        request
    };
    let id = owner
        .send(by(post(None, INITIALIZE), "ann"))
        .await
        .session()
        .to_owned();
    owner.inner.take();
    assert_eq!(
        owner.send(by(post(Some(&id), CALL), "ann")).await.status,
        200
    );
    owner.inner.take();
    for node in [&owner, &node] {
        let unknown = node.send(by(post(Some("never-was"), CALL), "eve")).await;
        for request in [by(post(Some(&id), CALL), "eve"), post(Some(&id), CALL)] {
            let foreign = node.send(request).await;
            assert_eq!((foreign.status, &foreign.text), (404, &unknown.text));
            assert_eq!(foreign.headers, unknown.headers);
        }
        assert_eq!(node.send(by(delete(&id), "eve")).await.status, 404);
        // Not even a store that is down tells them apart.
        node.directory.set("lookup", Fault::Hangs);
        let unknown = node.send(by(post(Some("never-was"), CALL), "eve")).await;
        let foreign = node.send(by(post(Some(&id), CALL), "eve")).await;
        assert_eq!((foreign.status, foreign.text), (503, unknown.text));
        node.directory.heal();
        assert!(node.inner.take().is_empty());
    }
    assert_eq!(
        node.send(by(post(Some(&id), CALL), "ann")).await.status,
        409
    );
    // Bound all the same when the request that opened it said that it was something else.
    let mut lying = by(modern(post(None, INITIALIZE)), "ann");
    let lie = HeaderValue::from_static("tools/call");
    lying.headers_mut().insert("mcp-method", lie);
    let hidden = owner.send(lying).await.session().to_owned();
    assert_eq!(
        owner
            .send(by(post(Some(&hidden), CALL), "ann"))
            .await
            .status,
        200
    );
    assert_eq!(
        owner
            .send(by(post(Some(&hidden), CALL), "eve"))
            .await
            .status,
        404
    );
    assert_eq!(owner.send(post(Some(&hidden), CALL)).await.status, 404);
    assert_eq!(
        owner.send(by(post(Some(&id), CALL), "ann")).await.status,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_must_be_read_is_read_to_a_limit() {
    let stage = Stage::set();
    let node = Node::with(&stage, "a", |layer| layer.with_body_limit(200)).await;
    let id = node.open().await;
    let long = CALL.replace("{}", &format!("{{\"text\":\"{}\"}}", "x".repeat(300)));
    for session in [None, Some("never-was"), Some("two words")] {
        let refused = node.send(post(session, long.clone())).await;
        let expected = match session {
            Some("two words") => (400, "session_malformed"),
            _ => (413, "request_too_large"),
        };
        assert_eq!(refused.refusal(), expected);
        // Some clients wait for ever for an answer under their own id.
        assert_eq!(refused.json()["id"], 7);
    }
    let endless = long.replace("\"text\"", &format!("\"{}\"", "x".repeat(1000)));
    let refused = node.send(post(Some("never-was"), endless)).await;
    assert_eq!(refused.refusal(), (413, "request_too_large"));
    assert_eq!(refused.json()["id"], serde_json::Value::Null);
    assert!(node.inner.take().is_empty());
    // At its owner, and in the modern era, nobody has to read it.
    assert_eq!(node.send(post(Some(&id), long.clone())).await.status, 200);
    assert_eq!(
        node.send(modern(post(None, long.clone()))).await.status,
        200
    );
    assert_eq!(node.inner.take()[1].body, long);
}
