//! A vocabulary's strings, packed: one text, one end a token, one hash table of ids. Two findable tokens never share
//! a spelling.

use std::hash::Hasher as _;

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text merges into it.
    Normal,
    /// Stands for one byte that has no token of its own.
    Byte,
    /// Steers the model; never made from the content of a message.
    Control,
    /// A string that is one token wherever it stands.
    Added,
    /// A place in the vocabulary that no text reaches.
    Unused,
}

/// The tokens by id and by spelling.
pub(super) struct TokenTable {
    /// All spellings, one after another.
    text: String,
    /// For each token: where it ends in `text`.
    ends: Vec<usize>,
    kinds: Vec<Kind>,
    /// Open addressing with linear probing, at most three quarters full; its length is a power of two.
    slots: Vec<u32>,
    /// Bytes of the longest spelling: nothing longer needs to be looked up.
    longest: usize,
}

/// No token: ids are below it.
pub(super) const NO_TOKEN: u32 = u32::MAX;

impl TokenTable {
    /// From the spellings with their kinds, fewer than [`NO_TOKEN`]; the error is the first two ids with one spelling,
    /// and that.
    pub(super) fn new(tokens: Vec<String>, kinds: Vec<Kind>) -> Result<Self, (u32, u32, String)> {
        let mut text = String::with_capacity(tokens.iter().map(String::len).sum());
        let longest = tokens.iter().map(String::len).max().unwrap_or(0);
        let mut ends = Vec::with_capacity(tokens.len());
        for token in tokens {
            text.push_str(&token);
            ends.push(text.len());
        }
        let slots = vec![NO_TOKEN; (ends.len() + ends.len() / 3 + 1).next_power_of_two()];
        let mut table = Self { text, ends, kinds, slots, longest };
        for id in (0..NO_TOKEN).take(table.ends.len()) {
            if table.kind(id) == Kind::Unused {
                continue;
            }
            let slot = table.slot(table.text(id));
            match table.slots[slot] {
                NO_TOKEN => table.slots[slot] = id,
                first => return Err((first, id, table.text(id).to_owned())),
            }
        }
        Ok(table)
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The token's spelling; empty outside of the vocabulary.
    pub(super) fn text(&self, id: u32) -> &str {
        let place = id as usize;
        let Some(end) = self.ends.get(place) else { return "" };
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.text[start..*end]
    }

    /// What the token is for; `Unused` outside of the vocabulary.
    pub(super) fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Unused)
    }

    /// The token with this spelling that text may become by merging: neither control nor byte nor unused.
    pub(super) fn find(&self, text: &str) -> Option<u32> {
        self.find_any(text).filter(|id| matches!(self.kind(*id), Kind::Normal | Kind::Added))
    }

    /// The token with this spelling, of any kind but unused.
    pub(super) fn find_any(&self, text: &str) -> Option<u32> {
        if text.len() > self.longest {
            return None;
        }
        let id = self.slots[self.slot(text)];
        (id != NO_TOKEN).then_some(id)
    }

    /// The slot that holds this spelling, or the empty one where it would go.
    fn slot(&self, text: &str) -> usize {
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(text.as_bytes());
        let mask = self.slots.len() - 1;
        let mut slot = hasher.finish() as usize & mask;
        while self.slots[slot] != NO_TOKEN && self.text(self.slots[slot]) != text {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(tokens: &[(&str, Kind)]) -> Result<TokenTable, (u32, u32, String)> {
        TokenTable::new(
            tokens.iter().map(|(text, _)| (*text).to_owned()).collect(),
            tokens.iter().map(|(_, kind)| *kind).collect(),
        )
    }

    #[test]
    fn tokens_are_found_by_id_and_by_spelling() {
        let table = table(&[
            ("a", Kind::Normal),
            ("", Kind::Added),
            ("<s>", Kind::Control),
            ("<0x41>", Kind::Byte),
            ("a", Kind::Unused),
        ])
        .unwrap();
        let texts: Vec<&str> = (0..6).map(|id| table.text(id)).collect();
        assert_eq!(texts, ["a", "", "<s>", "<0x41>", "a", ""]);
        assert_eq!((table.len(), table.kind(2), table.kind(9)), (5, Kind::Control, Kind::Unused));
        for (text, found, any) in
            [("a", Some(0), Some(0)), ("<s>", None, Some(2)), ("<0x41>", None, Some(3)), ("b", None, None)]
        {
            assert_eq!((table.find(text), table.find_any(text)), (found, any), "{text:?}");
        }
    }

    #[test]
    fn slots_are_neither_too_many_nor_full() {
        let tokens: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
        let table = TokenTable::new(tokens, vec![Kind::Normal; 5000]).unwrap();
        assert_eq!(table.slots.len(), 8192);
        for id in 0..5000 {
            assert_eq!(table.find(&id.to_string()), Some(id));
        }
        assert_eq!(table.find("5000"), None);
    }

    #[test]
    fn one_spelling_twice_is_refused() {
        let twice = table(&[("x", Kind::Normal), ("y", Kind::Normal), ("x", Kind::Control)]);
        assert_eq!(twice.err(), Some((0, 2, "x".into())));
    }
}
