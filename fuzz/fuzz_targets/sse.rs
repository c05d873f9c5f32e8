//! A decoder never panics, never holds more than its limit lets it, says the same wherever its input is split, and
//! decodes what is encoded of what it said.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use mcp_session_guard::{
    mcp::sse::{Decoder, Item, encode},
    outbox::Cursor,
};

#[derive(Debug, PartialEq)]
enum Owned {
    Comment(Vec<u8>),
    Event(Option<Vec<u8>>, Vec<u8>, Option<Vec<u8>>, Option<u64>),
}

fn own(item: Item<'_>) -> Owned {
    match item {
        Item::Comment(text) => Owned::Comment(text.to_vec()),
        Item::Event(event) => Owned::Event(
            event.id.map(<[u8]>::to_vec),
            event.event.to_vec(),
            event.data.map(<[u8]>::to_vec),
            event.retry,
        ),
        other => panic!("an item that this target does not know: {other:?}"),
    }
}

fn decode(pieces: &[&[u8]], limit: usize) -> Option<Vec<Owned>> {
    let mut decoder = Decoder::new(limit);
    let mut items = Vec::new();
    for piece in pieces {
        decoder.feed(piece, |item| items.push(own(item))).ok()?;
    }
    Some(items)
}

fuzz_target!(|input: (u16, u16, &[u8])| {
    let (cut, limit, text) = input;
    let (head, tail) = text.split_at(usize::from(cut).min(text.len()));
    let _ = decode(&[head, tail], usize::from(limit));
    let whole = decode(&[text], usize::MAX);
    assert_eq!(decode(&[head, tail], usize::MAX), whole);
    for item in whole.unwrap_or_default() {
        let Owned::Event(_, event, Some(data), _) = item else {
            continue;
        };
        let mut out = BytesMut::new();
        encode(&mut out, &event, &data);
        let again = decode(&[&out], usize::MAX);
        assert_eq!(again, Some(vec![Owned::Event(None, event, Some(data), None)]));
    }
    // What is no cursor is refused, and what is one has one text.
    if let Ok(cursor) = Cursor::parse(text) {
        assert_eq!(cursor.to_string().as_bytes(), text);
    }
});
