//! What is to be measured: every combination of prompt lengths, output lengths and numbers of sequences.

/// Most sequences that a plan asks for.
pub const MAX_SEQUENCES: u32 = 64;

/// Tokens of the answer whose operations are timed: the first is made by the prefill.
const OPS_TOKENS: u32 = 2;

/// A plan of measurements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Runs before each measurement that do not count.
    pub warm_up: u32,
    /// Runs of each measurement.
    pub runs: u32,
    /// Tokens of each prompt.
    pub prompt_tokens: Vec<u32>,
    /// Tokens of each answer.
    pub max_tokens: Vec<u32>,
    /// Sequences at once.
    pub sequences: Vec<u32>,
    /// Measure one sequence without the KV cache too.
    pub without_cache: bool,
    /// Time the operations of a decode step too, after all else.
    pub time_ops: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            warm_up: 1,
            runs: 3,
            prompt_tokens: vec![64],
            max_tokens: vec![32],
            sequences: vec![1, 2, 4, 8],
            without_cache: false,
            time_ops: false,
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Sequences at once.
    pub n_sequences: u32,
    /// Tokens of each prompt.
    pub prompt_tokens: u32,
    /// Tokens of each answer.
    pub max_tokens: u32,
    /// Whether what was computed of earlier tokens is kept; without it every token computes all before it again.
    pub kv_cache: bool,
    /// Whether the operations of its second token are timed, and nothing else.
    pub time_ops: bool,
}

impl Load {
    /// What a person reads of it.
    pub fn name(self) -> String {
        let Self { n_sequences, prompt_tokens, max_tokens, kv_cache, time_ops } = self;
        if time_ops {
            return format!("operations of the token after {prompt_tokens}");
        }
        let sequences = if n_sequences == 1 { "sequence" } else { "sequences" };
        let without = if kv_cache { "" } else { " without the KV cache" };
        format!("{n_sequences} {sequences} of {prompt_tokens} + {max_tokens} tokens{without}")
    }
}

impl Plan {
    /// The measurements, in order. What is measured without the cache is measured with it, too.
    pub fn loads(&self) -> Vec<Load> {
        let mut loads = Vec::new();
        for &prompt_tokens in &self.prompt_tokens {
            for &max_tokens in &self.max_tokens {
                let load = |n_sequences, kv_cache| {
                    let time_ops = false;
                    Load { n_sequences, prompt_tokens, max_tokens, kv_cache, time_ops }
                };
                loads.extend(self.sequences.iter().map(|n| load(*n, true)));
                if self.without_cache {
                    loads.extend((!self.sequences.contains(&1)).then(|| load(1, true)));
                    loads.push(load(1, false));
                }
            }
        }
        if let (true, Some(&prompt_tokens)) = (self.time_ops, self.prompt_tokens.first()) {
            let (n_sequences, max_tokens) = (1, OPS_TOKENS);
            loads.push(Load { n_sequences, prompt_tokens, max_tokens, kv_cache: true, time_ops: true });
        }
        loads
    }

    /// Tokens of its longest sequence.
    pub fn context(&self) -> u64 {
        let longest = |tokens: &[u32]| u64::from(tokens.iter().copied().max().unwrap_or_default());
        let of_ops = self.prompt_tokens.first().filter(|_| self.time_ops);
        let of_ops = of_ops.map_or(0, |&prompt_tokens| u64::from(prompt_tokens) + u64::from(OPS_TOKENS));
        (longest(&self.prompt_tokens) + longest(&self.max_tokens)).max(of_ops)
    }

    /// The most sequences at once.
    pub fn most_sequences(&self) -> u32 {
        self.sequences.iter().copied().max().unwrap_or(1)
    }

    /// Why a model does not have room for it, in one sentence: it answers within `context` tokens, and its sequences share
    /// `kv_tokens`.
    pub fn obstacle(&self, context: u64, kv_tokens: u64) -> Option<String> {
        const BLOCK_TOKENS: u64 = 32;
        let (own, n) = (self.context(), u64::from(self.most_sequences()));
        // A block is kept free for each that runs when another is let in.
        let needed = n * own.next_multiple_of(BLOCK_TOKENS) + (n - 1) * BLOCK_TOKENS;
        if own > context {
            Some(format!(
                "Prompt and answer make {own} tokens, but the model's context holds {context}; take fewer."
            ))
        } else if needed > kv_tokens {
            Some(format!(
                "{n} sequences of {own} tokens need a KV cache of {needed} tokens, but it holds {kv_tokens}; take fewer sequences, shorter ones, or a longer context."
            ))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_cache_one_is_measured_both_ways() {
        let plan =
            Plan { sequences: vec![2], max_tokens: vec![4, 5], without_cache: true, ..Plan::default() };
        let found: Vec<(u32, u32, bool)> =
            plan.loads().iter().map(|load| (load.n_sequences, load.max_tokens, load.kv_cache)).collect();
        let each = |n| [(2, n, true), (1, n, true), (1, n, false)];
        assert_eq!(found, [each(4), each(5)].concat());
        assert_eq!((plan.context(), plan.most_sequences()), (69, 2));
    }

    #[test]
    fn what_has_no_room_is_said_in_a_sentence() {
        let plan = Plan { sequences: vec![1, 4], ..Plan::default() };
        let needed = 4 * 96 + 3 * 32;
        assert_eq!(plan.obstacle(96, needed), None);
        let too_long = plan.obstacle(95, needed).unwrap();
        assert!(too_long.contains("96 tokens") && too_long.contains("95"), "{too_long}");
        let too_many = plan.obstacle(96, needed - 1).unwrap();
        assert!(too_many.contains("4 sequences") && too_many.contains("480"), "{too_many}");
    }
}
