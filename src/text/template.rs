//! Chat template → prompt, as Hugging Face runs Jinja. A template is a program from a model file: it gets a budget of
//! work and memory, sees only the conversation, and cannot mistake a message's content for its own words.

use std::sync::OnceLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, ErrorKind, State};
use serde_json::{Map, Value as Json, json};

use super::TextError;
use super::special::SpecialTokens;
use super::strftime::strftime;
use super::template_scan::with_checks;
use super::template_value::add_checks;
use super::tojson::tojson;

/// Instructions that one rendering may run, or 64 bytes of text each that it may make: 64 MB, far beyond any context.
const FUEL: u64 = 1_000_000;
/// Nested calls and blocks; a worker in a browser has 1 MiB of stack.
const MAX_RECURSION: usize = 100;
/// Longest format of a date, bytes.
const MAX_DATE_FORMAT: usize = 1024;
/// Most characters of a template's own words in a message.
const MAX_QUOTED: usize = 500;
/// Longest name of an argument that is told of, bytes, and most of them.
const MAX_ARGUMENT: usize = 64;
const MAX_ARGUMENTS: usize = 32;
const NAME: &str = "chat_template";
/// What every conversation has, whether the model has such tokens or not.
const GIVEN: [&str; 8] = [
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    "unk_token",
    "pad_token",
];
/// Not a name that a template can spell.
const NOW: &str = "now, unix seconds";

/// A conversation to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chat {
    /// The turns so far. A system turn without text is left out.
    pub turns: Vec<ChatTurn>,
    /// Tools offered to the template, each a JSON object as text.
    pub tools: Vec<String>,
    /// Further template arguments, such as `enable_thinking`, each value JSON as text.
    pub template_arguments: Vec<(String, String)>,
    /// End with the beginning of the assistant's answer.
    pub add_generation_prompt: bool,
    /// The moment for templates that tell the date: seconds since 1970, UTC.
    pub now_unix_secs: i64,
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatTurn {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, or what the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
    /// Tools the assistant called in this turn.
    pub tool_calls: Vec<ChatToolCall>,
}

/// A tool call made by the assistant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatToolCall {
    /// The call's name within the conversation.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Its arguments, a JSON object as text.
    pub arguments: String,
}

/// A conversation as its model's prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The prompt, as people may read it.
    pub text: String,
    /// Byte offsets in `text`, ascending, at which no control token may be in the making: see `SpecialTokens::split`.
    pub(super) breaks: Vec<usize>,
}

/// A model's template, compiled when it is first needed: raw text never meets it.
pub(super) struct ChatTemplate {
    /// As the file has it, without training's tags.
    source: Option<String>,
    compiled: OnceLock<Result<Environment<'static>, TextError>>,
    /// The model's tokens by the names that templates know.
    tokens: Vec<(&'static str, String)>,
}

/// The message of `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

impl ChatTemplate {
    /// Keeps the template for [`Self::render`].
    pub(super) fn new(source: Option<String>, tokens: Vec<(&'static str, String)>) -> Self {
        Self { source, compiled: OnceLock::new(), tokens }
    }

    /// Whether the file has one.
    pub(super) fn exists(&self) -> bool {
        self.source.is_some()
    }

    /// The conversation as a prompt.
    pub(super) fn render(&self, chat: &Chat, special: &SpecialTokens) -> Result<Rendered, TextError> {
        let source = self.source.as_deref().ok_or(TextError::NoTemplate)?;
        let environment = self.compiled.get_or_init(|| compile(source)).as_ref().map_err(Clone::clone)?;
        let mut variables = self.variables(chat)?;
        let marker = mark_content(&mut variables, source, special)?;
        let template = environment.get_template(NAME).map_err(render_error)?;
        let marked = template.render(Value::from(Serde(&variables))).map_err(render_error)?;
        Ok(unmark(&marked, marker))
    }

    /// The names that it reads and nothing but a tab's arguments gives, in order. One that cannot be read has none.
    pub(super) fn arguments(&self) -> Vec<String> {
        let Some(source) = &self.source else { return Vec::new() };
        let Ok(environment) = self.compiled.get_or_init(|| compile(source)) else { return Vec::new() };
        let Ok(template) = environment.get_template(NAME) else { return Vec::new() };
        let given: Vec<&str> = environment.globals().map(|(name, _)| name).chain(GIVEN).collect();
        let is_argument = |name: &String| name.len() <= MAX_ARGUMENT && !given.contains(&name.as_str());
        let mut names: Vec<String> =
            template.undeclared_variables(false).into_iter().filter(is_argument).collect();
        names.sort();
        names.truncate(MAX_ARGUMENTS);
        names
    }

    /// What the template sees.
    fn variables(&self, chat: &Chat) -> Result<Map<String, Json>, TextError> {
        let mut variables = Map::new();
        variables.insert("messages".into(), messages(&chat.turns)?);
        let tools: Vec<Json> = chat
            .tools
            .iter()
            .enumerate()
            .map(|(index, tool)| parse_object(tool, || format!("tools[{index}]")))
            .collect::<Result<_, _>>()?;
        variables.insert("tools".into(), if tools.is_empty() { Json::Null } else { tools.into() });
        variables.insert("documents".into(), Json::Null);
        variables.insert("add_generation_prompt".into(), chat.add_generation_prompt.into());
        variables.insert(NOW.into(), chat.now_unix_secs.into());
        variables.extend(self.tokens.iter().map(|(name, text)| ((*name).to_owned(), text.as_str().into())));
        for (name, value) in &chat.template_arguments {
            if variables.contains_key(name) {
                return Err(TextError::ReservedArgument { name: name.clone() });
            }
            variables.insert(
                name.clone(),
                parse(value, "a JSON value", || format!("template_arguments[{name:?}]"))?,
            );
        }
        Ok(variables)
    }
}

fn compile(source: &str) -> Result<Environment<'static>, TextError> {
    let syntax_error = |detail: String| TextError::TemplateSyntax { detail: visible(&detail) };
    let source = with_checks(&without_generation_tags(source)).map_err(syntax_error)?;
    let mut environment = environment();
    environment.add_template_owned(NAME, source).map_err(|error| syntax_error(error.to_string()))?;
    Ok(environment)
}

fn messages(turns: &[ChatTurn]) -> Result<Json, TextError> {
    let said = |turn: &&ChatTurn| turn.role != "system" || !turn.content.trim().is_empty();
    let mut messages = Vec::with_capacity(turns.len());
    for (index, turn) in turns.iter().enumerate().filter(|(_, turn)| said(turn)) {
        let mut message = json!({ "role": turn.role, "content": turn.content });
        if !turn.tool_calls.is_empty() {
            let calls = turn.tool_calls.iter().enumerate().map(|(call_index, call)| {
                let field = || format!("messages[{index}].tool_calls[{call_index}].arguments");
                let arguments = parse_object(&call.arguments, field)?;
                let function = json!({ "name": call.name, "arguments": arguments });
                Ok(json!({ "id": call.id, "type": "function", "function": function }))
            });
            message["tool_calls"] = calls.collect::<Result<Vec<_>, TextError>>()?.into();
        }
        messages.push(message);
    }
    if messages.is_empty() {
        return Err(TextError::NoMessages);
    }
    Ok(messages.into())
}

fn parse(text: &str, wanted: &'static str, field: impl Fn() -> String) -> Result<Json, TextError> {
    serde_json::from_str(text).map_err(|error| TextError::BadJson {
        field: field(),
        wanted,
        problem: error.to_string(),
    })
}

fn parse_object(text: &str, field: impl Fn() -> String) -> Result<Json, TextError> {
    const WANTED: &str = "a JSON object";
    let value = parse(text, WANTED, &field)?;
    if value.is_object() {
        return Ok(value);
    }
    Err(TextError::BadJson { field: field(), wanted: WANTED, problem: "found another JSON value".into() })
}

/// Marks what the conversation brings (roles, which templates make control tokens of, and the model's own tokens are
/// not marked); gives the character it marked with.
fn mark_content(
    variables: &mut Map<String, Json>,
    source: &str,
    special: &SpecialTokens,
) -> Result<char, TextError> {
    let all = serde_json::to_string(variables).expect("JSON values have a text form");
    let marker = ('\u{FDD0}'..='\u{FDEF}')
        .chain('\u{E000}'..='\u{F8FF}')
        .find(|candidate| !all.contains(*candidate) && !source.contains(*candidate))
        .ok_or(TextError::NoMarker)?;
    for (name, value) in variables {
        match (name.as_str(), value) {
            ("messages", Json::Array(messages)) => {
                let fields = messages.iter_mut().filter_map(Json::as_object_mut).flatten();
                fields
                    .filter(|(field, _)| *field != "role")
                    .for_each(|(_, value)| mark(value, marker, special));
            }
            ("bos_token" | "eos_token" | "unk_token" | "pad_token", _) => {}
            (_, value) => mark(value, marker, special),
        }
    }
    Ok(marker)
}

fn mark(value: &mut Json, marker: char, special: &SpecialTokens) {
    match value {
        Json::String(text) => *text = special.mark(text, marker),
        Json::Array(items) => items.iter_mut().for_each(|item| mark(item, marker, special)),
        Json::Object(fields) => {
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(key, mut value)| {
                    mark(&mut value, marker, special);
                    (special.mark(&key, marker), value)
                })
                .collect();
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn unmark(marked: &str, marker: char) -> Rendered {
    let mut rendered = Rendered { text: String::with_capacity(marked.len()), breaks: Vec::new() };
    for (index, part) in marked.split(marker).enumerate() {
        if index > 0 {
            rendered.breaks.push(rendered.text.len());
        }
        rendered.text.push_str(part);
    }
    rendered
}

fn render_error(error: Error) -> TextError {
    if error.kind() == ErrorKind::OutOfFuel {
        return TextError::TemplateExhausted;
    }
    let mut source: Option<&dyn std::error::Error> = Some(&error);
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return TextError::TemplateRaised { message: visible(message) };
        }
        if cause.downcast_ref::<Error>().is_some_and(|cause| cause.kind() == ErrorKind::OutOfFuel) {
            return TextError::TemplateExhausted;
        }
        source = cause.source();
    }
    TextError::TemplateFailed { detail: visible(&error.to_string()) }
}

/// A template's words as a message shows them: not too many, and control characters as escapes.
fn visible(text: &str) -> String {
    let mut out = String::new();
    for (index, letter) in text.chars().enumerate() {
        match letter {
            _ if index == MAX_QUOTED => {
                out.push('…');
                break;
            }
            '\'' | '"' | '\\' => out.push(letter),
            _ => out.extend(letter.escape_debug()),
        }
    }
    out
}

/// Jinja as Hugging Face sets it up.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the default ones"));
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
    });
    environment.add_function("strftime_now", |state: &State<'_, '_>, format: &str| {
        if format.len() > MAX_DATE_FORMAT {
            let detail =
                format!("strftime_now: the format has {} bytes, at most {MAX_DATE_FORMAT}", format.len());
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
        let now = state.lookup(NOW).and_then(|now| now.as_i64()).unwrap_or_default();
        Ok(strftime(now, format))
    });
    add_checks(&mut environment);
    environment
}

/// The template with its `generation` blocks, which only training needs, made blocks that do nothing; the whitespace
/// that their tags take stays taken.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        rest = tag;
        let Some(end) = tag.find("%}") else { break };
        let inner = &tag[..end];
        let replaced = match inner.trim_matches(['-', '+']).trim() {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => continue,
        };
        let control = |edge: Option<char>| edge.filter(|edge| matches!(edge, '-' | '+'));
        out.extend(control(inner.chars().next()));
        out.push(' ');
        out.push_str(replaced);
        out.push(' ');
        out.extend(control(inner.chars().next_back()));
        rest = &tag[end..];
    }
    out.push_str(rest);
    out
}
