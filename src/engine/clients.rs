//! Whose turn it is: clients are served in turns, however many sequences each of them has.
//!
//! Invariant: one that comes, or comes again, stands behind all that are here, so no stream of newcomers passes one by.

use std::collections::BTreeMap;

use super::ClientId;

/// When a client was last served.
#[derive(Debug, Clone, Copy)]
struct Turns {
    /// When a sequence of it was last admitted.
    admitted: u64,
    /// When a prompt of it last got rows.
    read: u64,
}

/// The clients that have sequences.
#[derive(Debug, Default)]
pub(super) struct Clients {
    turns: BTreeMap<ClientId, Turns>,
    n_turns: u64,
}

impl Clients {
    /// Takes in a client, if it is not here yet.
    pub(super) fn come(&mut self, client: ClientId) {
        let now = self.now();
        self.turns.entry(client).or_insert(Turns { admitted: now, read: now });
    }

    /// A client has no sequences any more.
    pub(super) fn go(&mut self, client: ClientId) {
        self.turns.remove(&client);
    }

    /// When a sequence of a client was last admitted, or else when it came.
    pub(super) fn admitted(&self, client: ClientId) -> u64 {
        self.turns[&client].admitted
    }

    /// When a prompt of a client last got rows, or else when it came.
    pub(super) fn read(&self, client: ClientId) -> u64 {
        self.turns[&client].read
    }

    /// A sequence of a client is admitted; when.
    pub(super) fn admit(&mut self, client: ClientId) -> u64 {
        let now = self.now();
        self.client(client).admitted = now;
        now
    }

    /// A prompt of a client gets rows; when.
    pub(super) fn take_turn(&mut self, client: ClientId) -> u64 {
        let now = self.now();
        self.client(client).read = now;
        now
    }

    fn client(&mut self, client: ClientId) -> &mut Turns {
        self.turns.get_mut(&client).expect("a client is here while it has sequences")
    }

    fn now(&mut self) -> u64 {
        self.n_turns += 1;
        self.n_turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_stands_behind_all_that_are_here() {
        let mut clients = Clients::default();
        clients.come(7);
        clients.come(3);
        clients.come(7);
        assert!(clients.admitted(7) < clients.admitted(3) && clients.read(7) < clients.read(3));
        clients.admit(7);
        clients.take_turn(3);
        assert!(clients.admitted(7) > clients.admitted(3) && clients.read(7) < clients.read(3));
        clients.go(7);
        clients.come(7);
        assert!(clients.admitted(7) > clients.admitted(3) && clients.read(7) > clients.read(3));
    }
}
