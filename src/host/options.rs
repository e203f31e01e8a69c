//! What a tab asks of sampling, as the engine understands it; the engine checks the ranges.

use crate::engine::params::SamplingParams;
use crate::protocol::GenerateOptions;
use crate::text::{TextError, Tokenizer};

/// Sampling parameters of a request; `seed` is used where the tab gave none.
pub fn sampling_params(
    options: &GenerateOptions,
    tokenizer: &Tokenizer,
    seed: u64,
) -> Result<SamplingParams, TextError> {
    Ok(SamplingParams {
        temperature: options.temperature,
        top_k: options.top_k,
        top_p: options.top_p,
        min_p: options.min_p,
        repetition_penalty: options.repetition_penalty,
        presence_penalty: options.presence_penalty,
        frequency_penalty: options.frequency_penalty,
        seed: options.seed.unwrap_or(seed),
        max_tokens: options.max_tokens.map(|n| n as usize),
        min_tokens: options.min_tokens as usize,
        stop_token_ids: options.stop_token_ids.clone(),
        // The end of a form is its end.
        eog_ids: if options.ignore_eos && options.structure.is_none() {
            Vec::new()
        } else {
            tokenizer.eog().to_vec()
        },
        bad_words: bad_words(&options.bad_words, tokenizer)?,
        logit_bias: options.logit_bias.clone(),
        logprobs: options.logprobs.map(|n| n as usize),
        prompt_logprobs: options.prompt_logprobs.map(|n| n as usize),
        reuse_prefix: options.reuse_prefix,
    })
}

/// Each word as it stands at the start of a text, and as it follows other words: with a space before it, where that is
/// the same number of tokens beginning otherwise, as vLLM does.
fn bad_words(words: &[String], tokenizer: &Tokenizer) -> Result<Vec<Vec<u32>>, TextError> {
    let mut sequences = Vec::new();
    for word in words {
        let bare = tokenizer.encode_piece(word.trim_start())?;
        let spaced = tokenizer.encode_piece(&format!(" {}", word.trim_start()))?;
        if spaced.first() != bare.first() && spaced.len() == bare.len() {
            sequences.push(spaced);
        }
        sequences.push(bare);
    }
    Ok(sequences)
}
