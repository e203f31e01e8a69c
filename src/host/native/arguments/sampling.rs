//! Options that say how tokens are chosen.

use super::{number, refusal};
use crate::protocol::GenerateOptions;

/// Sets what an option says. Options are named as their fields are, as the engine does.
pub(super) fn set(sampling: &mut GenerateOptions, name: &str, value: &str) -> Result<(), String> {
    match name {
        "temperature" => sampling.temperature = number("temperature", value, "a finite number of 0 or more")?,
        "top-k" => {
            sampling.top_k =
                number("top_k", value, "a whole number: 0 or -1 to keep all tokens, or 1 or more")?;
        }
        "top-p" => sampling.top_p = number("top_p", value, "a number greater than 0 and at most 1")?,
        "min-p" => sampling.min_p = number("min_p", value, "a number from 0 to 1")?,
        "repetition-penalty" => {
            sampling.repetition_penalty =
                number("repetition_penalty", value, "a finite number greater than 0")?;
        }
        "presence-penalty" => {
            sampling.presence_penalty = number("presence_penalty", value, "a number from -2 to 2")?;
        }
        "frequency-penalty" => {
            sampling.frequency_penalty = number("frequency_penalty", value, "a number from -2 to 2")?;
        }
        "seed" => {
            sampling.seed = Some(number("seed", value, "a whole number from 0 to 18446744073709551615")?);
        }
        "stop" => sampling.stop.push(value.into()),
        "bad-words" => sampling.bad_words.push(value.into()),
        "stop-token-ids" => {
            const WANTED: &str = "token ids with commas between";
            let ids = value.split(',').map(|id| number("stop_token_ids", id, WANTED));
            sampling.stop_token_ids.extend(ids.collect::<Result<Vec<u32>, _>>()?);
        }
        "logit-bias" => {
            const WANTED: &str = "a token id, =, and a number from -100 to 100, such as 42=-5";
            let (id, bias) = value.split_once('=').ok_or_else(|| refusal("logit_bias", value, WANTED))?;
            sampling
                .logit_bias
                .push((number("logit_bias", id, WANTED)?, number("logit_bias", bias, WANTED)?));
        }
        other => unreachable!("the table has no other option than those here, but {other}"),
    }
    Ok(())
}
