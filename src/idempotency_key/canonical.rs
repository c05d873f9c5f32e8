//! The parameters of a call, read strictly and written canonically, in one walk.
//!
//! RFC 8785 is not enough here: it reads numbers as doubles, so that two calls with different amounts could be written
//! alike. Here members are put in order and strings are written in one way, and numbers stay as they were. What a guard
//! and a service could read differently (a member that stands twice, half a surrogate pair) is refused.

use std::ops::Range;

use memchr::memchr2;

use crate::mcp::Envelope;

/// What stands in the parameters, beside what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Members<'t> {
    pub(super) name: Option<&'t str>,
    /// `_meta["mcp-session-guard/idempotencyKey"]`.
    pub(super) meta_key: Option<&'t str>,
    /// `idempotencyKey`, as SEP-3182 had it.
    pub(super) key: Option<&'t str>,
    /// `_meta["io.modelcontextprotocol/protocolVersion"]`.
    pub(super) version: Option<&'t str>,
    /// `requestState` and `inputResponses`: the call goes on from an earlier one (MCP 2026-07-28).
    pub(super) state: Option<&'t str>,
    pub(super) responses: Option<&'t str>,
}

/// The text cannot be read in one way only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ambiguous;

/// Reads parameters. Gives what stands in them, and all of them but `_meta` and the key as canonical text.
pub(super) fn read(params: &str) -> Result<(Members<'_>, Vec<u8>), Ambiguous> {
    let mut walk = Walk {
        text: params,
        at: 0,
        out: Vec::with_capacity(params.len()),
        entries: Vec::with_capacity(16),
        spare: Vec::new(),
        members: Members::default(),
    };
    walk.skip_space();
    if walk.peek() != Some(b'{') {
        return Err(Ambiguous);
    }
    walk.object(Level::Params, Envelope::MAX_DEPTH)?;
    walk.skip_space();
    match walk.peek() {
        None => Ok((walk.members, walk.out)),
        Some(_) => Err(Ambiguous),
    }
}

/// Which object it is that is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Params,
    Meta,
    Other,
}

struct Walk<'t> {
    text: &'t str,
    at: usize,
    out: Vec<u8>,
    /// Members of the objects that are open.
    entries: Vec<Entry>,
    spare: Vec<u8>,
    members: Members<'t>,
}

/// A member where it was written.
#[derive(Debug, Clone, Copy)]
struct Entry {
    start: usize,
    name_end: usize,
    end: usize,
    kept: bool,
}

impl Entry {
    fn name(&self) -> Range<usize> {
        self.start..self.name_end
    }
}

impl<'t> Walk<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: u8) -> Result<(), Ambiguous> {
        self.take_if(wanted).then_some(()).ok_or(Ambiguous)
    }

    fn take_if(&mut self, wanted: u8) -> bool {
        self.skip_space();
        let taken = self.peek() == Some(wanted);
        self.at += usize::from(taken);
        taken
    }

    fn value(&mut self, level: Level, depth: usize) -> Result<(), Ambiguous> {
        self.skip_space();
        match self.peek().ok_or(Ambiguous)? {
            b'{' => self.object(level, depth),
            b'[' => self.array(depth),
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            _ => self.literal(),
        }
    }

    fn object(&mut self, level: Level, depth: usize) -> Result<(), Ambiguous> {
        let depth = depth.checked_sub(1).ok_or(Ambiguous)?;
        self.take(b'{')?;
        self.out.push(b'{');
        let (first, open) = (self.entries.len(), self.out.len());
        if !self.take_if(b'}') {
            loop {
                self.member(level, depth)?;
                if !self.take_if(b',') {
                    break self.take(b'}')?;
                }
                self.out.push(b',');
            }
        }
        self.put_in_order(first, open)?;
        self.entries.truncate(first);
        self.out.push(b'}');
        Ok(())
    }

    fn member(&mut self, level: Level, depth: usize) -> Result<(), Ambiguous> {
        self.skip_space();
        let start = self.out.len();
        self.string()?;
        let name_end = self.out.len();
        self.take(b':')?;
        self.out.push(b':');
        self.skip_space();
        let name = &self.out[start..name_end];
        let meta = level == Level::Params && name == b"\"_meta\"";
        let kept = !meta && (level != Level::Params || name != b"\"idempotencyKey\"");
        let from = self.at;
        self.value(if meta { Level::Meta } else { Level::Other }, depth)?;
        let value = &self.text[from..self.at];
        let members = &mut self.members;
        let place = match (level, &self.out[start..name_end]) {
            (Level::Params, b"\"name\"") => Some(&mut members.name),
            (Level::Params, b"\"idempotencyKey\"") => Some(&mut members.key),
            (Level::Params, b"\"requestState\"") => Some(&mut members.state),
            (Level::Params, b"\"inputResponses\"") => Some(&mut members.responses),
            (Level::Meta, b"\"mcp-session-guard/idempotencyKey\"") => Some(&mut members.meta_key),
            (Level::Meta, b"\"io.modelcontextprotocol/protocolVersion\"") => {
                Some(&mut members.version)
            }
            _ => None,
        };
        if let Some(place) = place {
            *place = Some(value);
        }
        self.entries.push(Entry {
            start,
            name_end,
            end: self.out.len(),
            kept,
        });
        Ok(())
    }

    /// Puts the members of the innermost object in the order of their names, without those that are not kept.
    fn put_in_order(&mut self, first: usize, open: usize) -> Result<(), Ambiguous> {
        let Self {
            out,
            entries,
            spare,
            ..
        } = self;
        let entries = &mut entries[first..];
        let ordered = |entries: &[Entry]| {
            let mut pairs = entries.windows(2);
            pairs.all(|pair| out[pair[0].name()] < out[pair[1].name()])
        };
        if !ordered(entries) {
            entries.sort_unstable_by(|one, other| out[one.name()].cmp(&out[other.name()]));
            // Names are written in one way, so what is not in order now stands there twice.
            if !ordered(entries) {
                return Err(Ambiguous);
            }
        } else if entries.iter().all(|entry| entry.kept) {
            return Ok(());
        }
        spare.clear();
        for entry in entries.iter().filter(|entry| entry.kept) {
            if !spare.is_empty() {
                spare.push(b',');
            }
            spare.extend_from_slice(&out[entry.start..entry.end]);
        }
        out.truncate(open);
        out.append(spare);
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), Ambiguous> {
        let depth = depth.checked_sub(1).ok_or(Ambiguous)?;
        self.take(b'[')?;
        self.out.push(b'[');
        if !self.take_if(b']') {
            loop {
                self.value(Level::Other, depth)?;
                if !self.take_if(b',') {
                    break self.take(b']')?;
                }
                self.out.push(b',');
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn literal(&mut self) -> Result<(), Ambiguous> {
        let rest = &self.text.as_bytes()[self.at..];
        let found = [&b"null"[..], b"true", b"false"]
            .into_iter()
            .find(|literal| rest.starts_with(literal));
        let literal = found.ok_or(Ambiguous)?;
        self.out.extend_from_slice(literal);
        self.at += literal.len();
        Ok(())
    }

    /// As it is written: what else it could be written as is a matter of whose arithmetic.
    fn number(&mut self) -> Result<(), Ambiguous> {
        let from = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        self.out
            .extend_from_slice(&self.text.as_bytes()[from..self.at]);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Ambiguous> {
        let from = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        (self.at > from).then_some(()).ok_or(Ambiguous)
    }

    /// With no more escapes than JSON needs.
    fn string(&mut self) -> Result<(), Ambiguous> {
        if self.peek() != Some(b'"') {
            return Err(Ambiguous);
        }
        self.at += 1;
        self.out.push(b'"');
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let end = memchr2(b'"', b'\\', rest).ok_or(Ambiguous)?;
            let plain = &rest[..end];
            if plain.iter().any(|byte| *byte < b' ') {
                return Err(Ambiguous);
            }
            self.out.extend_from_slice(plain);
            self.at += end + 1;
            if rest[end] == b'"' {
                self.out.push(b'"');
                return Ok(());
            }
            let character = self.escaped()?;
            self.write(character);
        }
    }

    fn write(&mut self, character: char) {
        match character {
            '"' | '\\' => self.out.extend_from_slice(&[b'\\', character as u8]),
            '\0'..='\u{1f}' => {
                let code = format!("\\u{:04x}", u32::from(character));
                self.out.extend_from_slice(code.as_bytes());
            }
            _ => {
                let mut text = [0; 4];
                let text = character.encode_utf8(&mut text);
                self.out.extend_from_slice(text.as_bytes());
            }
        }
    }

    /// The character behind a backslash.
    fn escaped(&mut self) -> Result<char, Ambiguous> {
        let escape = self.peek().ok_or(Ambiguous)?;
        self.at += 1;
        Ok(match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.unit()?;
                if !(0xd800..0xdc00).contains(&unit) {
                    return char::from_u32(unit).ok_or(Ambiguous);
                }
                if !self.text[self.at..].starts_with("\\u") {
                    return Err(Ambiguous);
                }
                self.at += 2;
                let low = self.unit()?.checked_sub(0xdc00).ok_or(Ambiguous)?;
                if low >= 0x400 {
                    return Err(Ambiguous);
                }
                char::from_u32(0x10000 + ((unit - 0xd800) << 10) + low).ok_or(Ambiguous)?
            }
            _ => return Err(Ambiguous),
        })
    }

    fn unit(&mut self) -> Result<u32, Ambiguous> {
        let digits = self.text.get(self.at..self.at + 4).ok_or(Ambiguous)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(Ambiguous);
        }
        self.at += 4;
        u32::from_str_radix(digits, 16).map_err(|_| Ambiguous)
    }
}

#[cfg(test)]
mod tests;
