//! Streams through the layer's own queue.

use std::time::Duration;

use http::StatusCode;

use super::{
    Rig, SESSION, TIMEOUT, call, event, note, result, settle,
    support::{get, inner::stream, post},
};

#[tokio::test(start_paused = true)]
async fn bytes_ids_and_order_are_the_inner_services_own() {
    let rig = Rig::new();
    let (tap, mut client) = rig.call("1").await;
    let said = [
        ": hello\n\n".to_owned(),
        event("0/1", ""),
        event("1/1", &note("a")),
        "event: x\nid: 2/1\nretry: 7\ndata: 1\ndata: 2\n\n".to_owned(),
        event("3/1", &result("1")),
    ];
    let mut expected = String::new();
    for piece in &said {
        tap.send(piece.clone()).unwrap();
        expected += &client.read().await.unwrap();
    }
    assert_eq!(expected, said.concat());
    drop(tap);
    assert_eq!(client.rest().await, (String::new(), "end".to_owned()));
    assert!(client.is_end_stream());
    rig.assert_blank();
}

#[tokio::test(start_paused = true)]
async fn a_comment_is_passed_on_only_to_a_client_that_has_nothing_else_to_read() {
    let rig = Rig::new();
    let (tap, mut client) = rig.listen().await;
    tap.event("1", &note("a"));
    for _ in 0..1000 {
        tap.send(": still here\n\n").unwrap();
    }
    settle().await;
    assert_eq!(rig.figures().undrained_messages, 1);
    assert_eq!(client.read().await.unwrap(), event("1", &note("a")));
    tap.send(": and now\n\n").unwrap();
    assert_eq!(client.read().await.unwrap(), ": and now\n\n");
}

#[tokio::test(start_paused = true)]
async fn a_large_event_is_handed_over_in_parts() {
    let rig = Rig::new();
    let (tap, mut client) = rig.listen().await;
    let large = event("1", &note(&"x".repeat(200_000)));
    tap.send(large.clone()).unwrap();
    settle().await;
    // Larger than the credit in bytes, and that alone stops nobody.
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(rig.ping("1").await.status, 200);
    let mut read = String::new();
    while read.len() < large.len() {
        let part = client.read().await.unwrap();
        assert!(part.len() <= 16 * 1024);
        read += &part;
        let expected = usize::from(read.len() < large.len());
        assert_eq!(rig.figures().undrained_messages, expected);
        // A slow client, that stands still for less than the time-out each time.
        tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
    }
    assert_eq!(read, large);
    assert_eq!(rig.figures().streams_torn_down, 0);
}

#[tokio::test(start_paused = true)]
async fn at_the_high_water_mark_the_inner_stream_is_no_longer_pulled() {
    let rig = Rig::new();
    let (tap, mut client) = rig.listen().await;
    for number in 0..100 {
        tap.event(&number.to_string(), &note("x"));
        settle().await;
    }
    let figures = rig.figures();
    assert_eq!((figures.undrained_messages, figures.peak_messages), (8, 8));
    // Another stream of the session, whose client reads, goes on.
    let mut other = rig.open(get(SESSION)).await;
    let other_tap = rig.tap();
    other_tap.event("a", &note("y"));
    assert_eq!(other.read().await.unwrap(), event("a", &note("y")));
    for number in 0..100 {
        let read = client.read().await.unwrap();
        assert_eq!(read, event(&number.to_string(), &note("x")));
    }
    // One more, for the client that had taken all there was.
    assert_eq!(rig.figures().peak_messages, 9);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_drops_the_inner_stream_and_gives_everything_back() {
    let rig = Rig::new();
    let (tap, client) = rig.call("1").await;
    for _ in 0..6 {
        tap.event("1", &note("x"));
    }
    settle().await;
    assert_eq!(rig.figures().sessions, 1);
    drop(client);
    rig.assert_blank();
    settle().await;
    assert!(tap.is_closed());
}

#[tokio::test(start_paused = true)]
async fn thousands_of_streams_leave_nothing_behind() {
    let rig = Rig::with(|layer| layer.with_credit(64, 1 << 20));
    for number in 0..5000_usize {
        let session = format!("session-{}", number % 7);
        let id = number.to_string();
        let request = match number % 3 {
            0 => get(&session),
            _ => post(Some(&session), call(&id)),
        };
        let mut client = rig.open(request).await;
        let tap = rig.tap();
        match number % 5 {
            // Left before anything was said, in the middle, and after the end.
            0 => {}
            1 => tap.event("1", &note("x")),
            2 => {
                tap.event("1", &note("x"));
                client.read().await.unwrap();
                tap.event("2", &result(&id));
                settle().await;
            }
            3 => {
                tap.event("2", &result(&id));
                drop(tap);
                client.rest().await;
            }
            _ => {
                tap.event("1", &note("x"));
                tap.fail();
                assert!(client.rest().await.1.contains("broke"));
            }
        }
    }
    settle().await;
    rig.assert_blank();
}

#[tokio::test(start_paused = true)]
async fn an_inner_stream_that_breaks_breaks() {
    let rig = Rig::new();
    let (tap, mut client) = rig.call("1").await;
    tap.event("1", &note("x"));
    tap.fail();
    assert_eq!(client.read().await.unwrap(), event("1", &note("x")));
    assert!(client.read().await.unwrap_err().contains("broke"));
    assert_eq!(client.read().await.unwrap_err(), "end");
    rig.assert_blank();
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_be_read_counts_by_its_frames() {
    let rig = Rig::new();
    let response = std::sync::Mutex::new(None);
    let (tap, mut streamed) = stream();
    let gzip = "gzip".parse().unwrap();
    streamed.headers_mut().insert("content-encoding", gzip);
    *response.lock().unwrap() = Some(streamed);
    rig.inner.script(move |_| {
        let response = response.lock().unwrap().take().unwrap();
        async move { response }
    });
    let mut client = rig.open(get(SESSION)).await;
    for _ in 0..3 {
        tap.send("\u{1}opaque").unwrap();
    }
    settle().await;
    assert_eq!(rig.figures().undrained_messages, 3);
    assert_eq!(client.read().await.unwrap(), "\u{1}opaque");
    assert_eq!(rig.figures().undrained_messages, 2);
}

#[tokio::test(start_paused = true)]
async fn a_refused_stream_passes_as_it_is() {
    let rig = Rig::new();
    rig.inner
        .script(|_| async { super::support::inner::respond(StatusCode::METHOD_NOT_ALLOWED, "no") });
    let answer = rig.answer(get(SESSION)).await;
    assert_eq!((answer.status, answer.text.as_str()), (405, "no"));
    rig.assert_blank();
}
