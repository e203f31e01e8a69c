//! What a tab asks, as the tokens that the model reads.

use crate::protocol::{self, Message, Prompt, thought_opening};
use crate::text::{Chat, ChatToolCall, ChatTurn, TextError, Tokenizer};

/// The text after the template, and its tokens.
pub fn encode(
    tokenizer: &Tokenizer,
    prompt: &Prompt,
    now_unix_secs: i64,
) -> Result<(String, Vec<u32>), TextError> {
    match prompt {
        Prompt::Text(text) => Ok((text.clone(), tokenizer.encode_text(text)?)),
        Prompt::Tokens(ids) => {
            let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.token_bytes(*id)).collect();
            Ok((String::from_utf8_lossy(&bytes).into_owned(), ids.clone()))
        }
        Prompt::Chat { messages, tools, template_arguments } => {
            let chat = Chat {
                turns: messages.iter().map(turn).collect(),
                tools: tools.clone(),
                template_arguments: template_arguments.clone(),
                add_generation_prompt: true,
                now_unix_secs,
            };
            let rendered = tokenizer.render(&chat)?;
            let ids = tokenizer.encode_rendered(&rendered)?;
            Ok((rendered.text, ids))
        }
    }
}

/// What a conversation's prompt ends with that the answer goes on from: a tag that opens what is thought, and what follows.
pub(super) fn opening(prompt: &Prompt, text: &str) -> String {
    match prompt {
        Prompt::Chat { .. } => thought_opening(text).to_owned(),
        Prompt::Text(_) | Prompt::Tokens(_) => String::new(),
    }
}

fn turn(message: &Message) -> ChatTurn {
    let tool_call = |call: &protocol::ToolCall| ChatToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    };
    ChatTurn {
        role: message.role.clone(),
        content: message.joined_text(),
        tool_calls: message.tool_calls.iter().map(tool_call).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_may_begin_the_thought() {
        let chat = Prompt::Chat { messages: vec![], tools: vec![], template_arguments: vec![] };
        for (text, expected) in [
            ("<|im_start|>assistant\n<think>\n", "<think>\n"),
            ("[INST]hi[/INST][THINK]", "[THINK]"),
            ("<|im_start|>assistant\n", ""),
            ("<|im_start|>assistant\n<think>\n\n</think>\n\n", ""),
            ("", ""),
        ] {
            assert_eq!(opening(&chat, text), expected, "{text}");
        }
        assert_eq!(opening(&Prompt::Text(String::new()), "Use <think>"), "");
    }
}
