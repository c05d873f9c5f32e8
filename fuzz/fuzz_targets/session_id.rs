//! A session id is what is made of 0x21 to 0x7E and fits, and nothing else; and it comes out as it went in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mcp_session_guard::session::{SessionId, SessionIdErrorKind};

fuzz_target!(|input: (u16, &[u8])| {
    let (limit, text) = (usize::from(input.0), input.1);
    check(
        text,
        limit,
        SessionId::parse_with_limit(text, limit).map_err(|e| e.kind()),
    );
    check(
        text,
        SessionId::DEFAULT_MAX_LEN,
        SessionId::parse(text).map_err(|e| e.kind()),
    );
});

fn check(text: &[u8], limit: usize, parsed: Result<SessionId, SessionIdErrorKind>) {
    let visible = text.iter().all(|byte| (0x21..=0x7e).contains(byte));
    match parsed {
        Ok(id) => {
            assert!(visible && !text.is_empty() && text.len() <= limit);
            assert_eq!(id.as_str().as_bytes(), text);
            let again: SessionId = id.as_str().parse().unwrap_or_else(|_| id.clone());
            assert_eq!(again, id);
        }
        Err(SessionIdErrorKind::Empty) => assert!(text.is_empty()),
        Err(SessionIdErrorKind::TooLong) => assert!(text.len() > limit),
        Err(SessionIdErrorKind::Character) => {
            assert!(!visible && !text.is_empty() && text.len() <= limit);
        }
        Err(other) => panic!("a kind that this target does not know: {other:?}"),
    }
}
