//! One walk over a JSON text that refuses what two readers could read differently.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};

use super::{Envelope, EnvelopeError, EnvelopeErrorKind};

/// Walks the whole text once: valid JSON, no deeper than the limit, no member twice in one object.
pub(super) fn check_strictly(text: &str) -> Result<(), EnvelopeError> {
    let mut broken = None;
    let mut json = serde_json::Deserializer::from_str(text);
    let walked = Strict {
        depth: Envelope::MAX_DEPTH,
        broken: &mut broken,
    }
    .deserialize(&mut json)
    .and_then(|()| json.end());
    match (walked, broken) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(kind)) => Err(kind.into()),
        (Err(_), None) => Err(EnvelopeErrorKind::NotJson.into()),
    }
}

struct Strict<'k> {
    depth: usize,
    broken: &'k mut Option<EnvelopeErrorKind>,
}

impl Strict<'_> {
    fn refuse<E: serde::de::Error>(&mut self, kind: EnvelopeErrorKind) -> E {
        *self.broken = Some(kind);
        E::custom(kind)
    }

    fn deeper<E: serde::de::Error>(&mut self) -> Result<usize, E> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(depth),
            None => Err(self.refuse(EnvelopeErrorKind::TooDeep)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let depth = self.deeper()?;
        let broken = &mut *self.broken;
        while seq
            .next_element_seed(Strict {
                depth,
                broken: &mut *broken,
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        #[derive(Deserialize, PartialEq, Eq, Hash)]
        struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
        let depth = self.deeper()?;
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<Key<'de>>()? {
            if !seen.insert(key) {
                return Err(self.refuse(EnvelopeErrorKind::DuplicateMember));
            }
            map.next_value_seed(Strict {
                depth,
                broken: &mut *self.broken,
            })?;
        }
        Ok(())
    }
}
