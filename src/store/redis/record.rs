//! A session's record as it is kept: what scripts read at fixed places, and the rest as JSON.

use serde::{Deserialize, Serialize};

use super::fault::Fault;
use crate::session::{
    CapabilityHash, Epoch, Fence, Incarnation, InstanceId, Principal, Residency, SessionId,
    SessionRecord, SessionTerms,
};

/// Where the name of the owner begins, after its length.
const NAME: usize = 152;
/// In the place of a time that never comes.
pub(super) const NEVER: &str = "ffffffffffffffff";

/// What only clients read. It has the session's own id in it, since the key has only a hash.
#[derive(Debug, Serialize, Deserialize)]
struct Rest<'a> {
    id: &'a str,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capabilities: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    principal: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention: Option<(u64, u32)>,
    opened: u64,
}

/// What a record keeps of a session for clients. The same session and terms give the same bytes.
pub(super) fn rest(id: &SessionId, terms: &SessionTerms) -> Vec<u8> {
    encode(&Rest {
        id: id.as_str(),
        capabilities: terms.capabilities.map(|hash| hash.to_string()),
        principal: terms.principal.as_ref().map(|of| of.subject().into()),
        retention: (terms.retention).map(|kept| (kept.as_secs(), kept.subsec_nanos())),
        opened: terms.opened,
    })
}

/// What a tombstone keeps.
pub(super) fn epitaph(id: &SessionId) -> Vec<u8> {
    encode(&Rest {
        id: id.as_str(),
        capabilities: None,
        principal: None,
        retention: None,
        opened: 0,
    })
}

fn encode(rest: &Rest<'_>) -> Vec<u8> {
    // Texts and numbers always have a JSON.
    serde_json::to_vec(rest).unwrap_or_default()
}

pub(super) fn residency(residency: Residency) -> &'static str {
    match residency {
        Residency::Pinned => "P",
        Residency::Externalized => "E",
    }
}

pub(super) fn retention(terms: &SessionTerms) -> String {
    match terms.retention {
        Some(kept) => format!("{:016x}", millis(kept)),
        None => NEVER.to_owned(),
    }
}

/// Whole milliseconds, none less than there were, and no more than a script can count.
pub(super) fn millis(time: std::time::Duration) -> u64 {
    let millis = time.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).unwrap_or(u64::MAX).min(1 << 51)
}

pub(super) fn fence(fence: Fence) -> String {
    format!(
        "{}{:016x}",
        incarnation(fence.incarnation()),
        fence.counter()
    )
}

fn incarnation(incarnation: Incarnation) -> String {
    format!("{:016x}{:016x}", incarnation.began(), incarnation.nonce())
}

pub(super) fn read_fence(text: &str) -> Result<Fence, Fault> {
    let incarnation = read_incarnation(text.get(..32).unwrap_or_default())?;
    Ok(Fence::new(incarnation, hex(text.get(32..48))?))
}

pub(super) fn read_incarnation(text: &str) -> Result<Incarnation, Fault> {
    Ok(Incarnation::new(
        hex(text.get(..16))?,
        hex(text.get(16..32))?,
    ))
}

fn hex(digits: Option<&str>) -> Result<u64, Fault> {
    digits
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or(Fault::Misread("a number that is none"))
}

/// Whose record it is, and by the directory's clock when it is over; nothing of a tombstone.
pub(super) fn owner(bytes: &[u8]) -> Option<(u128, u64)> {
    if !bytes.starts_with(b"1S") {
        return None;
    }
    let digits = |from, to| std::str::from_utf8(bytes.get(from..to)?).ok();
    let owner = u128::from_str_radix(digits(2, 34)?, 16).ok()?;
    let over = u64::from_str_radix(digits(116, 132)?, 16).ok()?;
    Some((owner, over))
}

/// Reads a record and holds it against the session that it was found under.
pub(super) fn read(bytes: &[u8], id: &SessionId) -> Result<SessionRecord, Fault> {
    let (head, name, rest) = parts(bytes, id)?;
    let epoch = (head.get(2..34)).and_then(|digits| u128::from_str_radix(digits, 16).ok());
    let epoch = epoch.ok_or(Fault::Misread("an epoch that is none"))?;
    let residency = match head.get(115..116) {
        Some("P") => Residency::Pinned,
        Some("E") => Residency::Externalized,
        _ => return Err(Fault::Misread("a residency that is none")),
    };
    let capabilities = match &rest.capabilities {
        Some(digits) => Some(read_capabilities(digits)?),
        None => None,
    };
    let mut terms = SessionTerms::new(residency)
        .with_capabilities(capabilities)
        .with_principal(rest.principal.map(|of| Principal::new(of.into_owned())))
        .with_retention(
            rest.retention
                .map(|(secs, nanos)| std::time::Duration::new(secs, nanos)),
        );
    terms.opened = rest.opened;
    let owner = InstanceId::new(name, Epoch::from_u128(epoch));
    let fence = read_fence(head.get(34..82).unwrap_or_default())?;
    Ok(SessionRecord::new(owner, fence, terms))
}

/// Whether a record, of a session or a tombstone, is that of this session.
pub(super) fn verify(bytes: &[u8], id: &SessionId) -> Result<(), Fault> {
    parts(bytes, id).map(|_| ())
}

fn parts<'a>(bytes: &'a [u8], id: &SessionId) -> Result<(&'a str, &'a str, Rest<'a>), Fault> {
    let wrong = || Fault::Misread("a record that cannot be read");
    let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
    if !text.starts_with('1') {
        return Err(Fault::Misread("a record of another schema"));
    }
    let length = usize::from_str_radix(text.get(148..NAME).ok_or_else(wrong)?, 16);
    let end = NAME + length.map_err(|_| wrong())?;
    let (head, name) = (text.get(..NAME), text.get(NAME..end));
    let rest: Rest<'_> = text
        .get(end..)
        .and_then(|rest| serde_json::from_str(rest).ok())
        .ok_or_else(wrong)?;
    if rest.id != id.as_str() {
        return Err(Fault::Misread("the record of another session"));
    }
    Ok((head.ok_or_else(wrong)?, name.ok_or_else(wrong)?, rest))
}

pub(super) fn read_capabilities(digits: &str) -> Result<CapabilityHash, Fault> {
    let bytes = read_bytes(digits).ok_or(Fault::Misread("a capability hash that is none"))?;
    Ok(CapabilityHash::from_bytes(bytes))
}

/// Thirty-two bytes from their digits.
pub(super) fn read_bytes(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}
