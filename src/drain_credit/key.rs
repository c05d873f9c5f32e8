//! A session id as the accounts keep it: short ones in place, so that a session which comes and goes costs no memory.

/// Room for the ids that servers mint.
const INLINE: usize = 62;

#[derive(Debug)]
pub(super) enum Key {
    Short { len: u8, bytes: [u8; INLINE] },
    Long(Box<[u8]>),
}

impl Key {
    #[inline]
    pub(super) fn new(id: &[u8]) -> Self {
        if id.len() > INLINE {
            return Self::Long(id.into());
        }
        let mut bytes = [0; INLINE];
        bytes[..id.len()].copy_from_slice(id);
        Self::Short {
            len: id.len() as u8,
            bytes,
        }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::new(b"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_ids_are_kept_as_they_are() {
        assert_eq!(size_of::<Key>(), 64);
        for length in [0, 1, 36, INLINE, INLINE + 1, 1024] {
            let id = vec![b'x'; length];
            assert_eq!(Key::new(&id).as_bytes(), id);
        }
    }
}
