//! Chat templates: they run as Hugging Face runs them, end, say why they fail, and alone write control tokens.

use pagelm::text::{Chat, ChatToolCall, ChatTurn, TextError};

use super::{ADDED, END, HI, START, chat, small_with, turn};

/// What `template` makes of one user turn, "hi".
pub(super) fn render(template: &str, change: impl FnOnce(&mut Chat)) -> Result<String, TextError> {
    let tokenizer = small_with(|file| file.chat_template = Some(template.into()))?;
    let mut chat = chat(vec![turn("user", "hi")]);
    change(&mut chat);
    tokenizer.render(&chat).map(|rendered| rendered.text)
}

#[test]
fn templates_run_as_hugging_face_runs_them() {
    let table: &[(&str, &str)] = &[
        ("{{ bos_token }}{{ messages[0]['role'] }}{{ messages[0].content }}{{ eos_token }}", "<s>userhi"),
        ("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"),
        (
            "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "013",
        ),
        ("{% if add_generation_prompt %}go{% endif %}{{ tools is none }}{{ documents }}", "goTrueNone"),
        (
            "{{ [1, 'a', true, none, {'k': 2.0}] }}{{ 'a' ~ true }}{{ 7 / 2 }}{{ 7 // 2 }}{{ 1 == 1.0 }}",
            "[1, 'a', True, None, {'k': 2.0}]aTrue3.53True",
        ),
        ("{% generation %}x{%- endgeneration %} y", "x y"),
        ("a {%- generation -%} b {% endgeneration %}\nc", "ab c"),
        ("{{ strftime_now('%d %b %Y %H:%M') }}", "01 Aug 2026 00:00"),
        ("{{ messages[0].content.strip().upper().split('I')[0] }}", "H"),
        (
            "{{ {'a': [1, 2.5, true, none, {}], 'é<&>': \"'\\n\"}|tojson }}",
            "{\"a\": [1, 2.5, true, null, {}], \"é<&>\": \"'\\n\"}",
        ),
        ("{{ {'b': [1], 'a': []}|tojson(indent=2) }}", "{\n  \"b\": [\n    1\n  ],\n  \"a\": []\n}"),
        (
            "{{ ['é🙂', 1]|tojson(ensure_ascii=true, separators=(',', ':')) }}",
            "[\"\\u00e9\\ud83d\\ude42\",1]",
        ),
        ("{{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }}", "{\"a\": 2, \"b\": 1}"),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
            "1",
        ),
        ("{{ now }}{{ messages[0].tool_calls is defined }}", "False"),
    ];
    for (template, expected) in table {
        assert_eq!(render(template, |_| {}).as_deref(), Ok(*expected), "{template}");
    }
}

#[test]
fn tools_calls_and_arguments_reach_the_template() {
    let template = "{{ tools|tojson }}|{{ messages[1].tool_calls[0].function.arguments.city }}|\
                    {{ messages[1].tool_calls[0]|tojson }}|{{ enable_thinking }}";
    let text = render(template, |chat| {
        chat.tools = vec![r#"{"type":"function","function":{"name":"weather"}}"#.into()];
        chat.template_arguments = vec![("enable_thinking".into(), "false".into())];
        let call =
            ChatToolCall { id: "1".into(), name: "weather".into(), arguments: r#"{"city":"Ås"}"#.into() };
        chat.turns.push(ChatTurn {
            role: "assistant".into(),
            content: String::new(),
            tool_calls: vec![call],
        });
    });
    let call =
        r#"{"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Ås"}}}"#;
    let tools = r#"[{"type": "function", "function": {"name": "weather"}}]"#;
    assert_eq!(text.unwrap(), format!("{tools}|Ås|{call}|False"));
}

#[test]
fn a_template_tells_which_arguments_it_reads() {
    let template = "{%- if enable_thinking is defined and enable_thinking is false %}no{% endif %}\
                    {% set ns = namespace(n=0) %}{% for m in messages %}{{ bos_token ~ m.role }}{% endfor %}\
                    {{ strftime_now('%d') }}{% if not tools and reasoning_effort %}{{ pad_token }}{% endif %}\
                    {{ raise_exception('x') if documents else ns.n }}{% if add_generation_prompt %}{% endif %}";
    let long = format!("{{{{ {} }}}}", "a".repeat(99));
    let many: String = (0..99).map(|i| format!("{{{{ a{i:02} }}}}")).collect();
    for (template, expected) in [
        (template, &["enable_thinking", "reasoning_effort"][..]),
        ("{{ messages", &[]),
        ("", &[]),
        (&long, &[]),
    ] {
        let tokenizer = small_with(|file| file.chat_template = Some(template.into())).unwrap();
        assert_eq!(tokenizer.template_arguments(), expected, "{template}");
    }
    let tokenizer = small_with(|file| file.chat_template = Some(many)).unwrap();
    assert_eq!(tokenizer.template_arguments().len(), 32);
    assert_eq!(small_with(|file| file.chat_template = None).unwrap().template_arguments(), [""; 0]);
}

#[test]
fn an_empty_system_turn_is_not_sent() {
    const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}]{% endfor %}";
    let render =
        |system: &str| render(TEMPLATE, |chat| chat.turns.insert(0, turn("system", system))).unwrap();
    assert_eq!(render(""), "[user]");
    assert_eq!(render(" \n"), "[user]");
    assert_eq!(render("Be brief."), "[system][user]");
}

#[test]
fn a_template_or_conversation_that_fails_says_why() {
    let check = |template: &str, change: fn(&mut Chat), words: &[&str]| {
        let error = render(template, change).expect_err(template).to_string();
        for word in words {
            assert!(error.contains(word), "{word:?} is missing in: {error}");
        }
    };
    let none: fn(&mut Chat) = |_| {};
    check("{{ raise_exception('roles must ' ~ 'alternate') }}", none, &["refuses", "roles must alternate"]);
    let r#macro = "{% macro f() %}{{ raise_exception('deep') }}{% endmacro %}{% for m in messages %}{{ f() }}{% endfor %}";
    check(r#macro, none, &["refuses", "deep"]);
    check(
        "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
        none,
        &["forever"],
    );
    check("{% for a in range(90000) %}{{ 'x' * 90000 }}{% endfor %}", none, &["forever", "more text"]);
    let doubling =
        "{% set ns = namespace(x='x') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    check(doubling, none, &["forever", "more text"]);
    check("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", none, &["failed", "recursion"]);
    let nested = "{% set ns = namespace(x=[]) %}{% for a in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}";
    check(nested, none, &["failed", "nested more than"]);
    check("{% if %}", none, &["cannot be read", "chat_template:1", "another file", "--prompt"]);
    check("{{ messages[0].nothing.at.all }}", none, &["failed", "undefined"]);
    check("x", |chat| chat.turns.clear(), &["no messages"]);
    check("x", |chat| chat.turns = vec![turn("system", "")], &["no messages"]);
    check("x", |chat| chat.tools = vec!["{}".into(), "{".into()], &["tools[1] must be a JSON object"]);
    check("x", |chat| chat.tools = vec!["3".into()], &["tools[0] must be a JSON object"]);
    check(
        "x",
        |chat| chat.template_arguments = vec![("a".into(), "tru".into())],
        &["template_arguments[\"a\"]"],
    );
    check(
        "x",
        |chat| chat.template_arguments = vec![("messages".into(), "[]".into())],
        &["\"messages\"", "another name"],
    );
    let call = |chat: &mut Chat| {
        let call = ChatToolCall { id: String::new(), name: "f".into(), arguments: "[]".into() };
        chat.turns[0].tool_calls.push(call);
    };
    check("x", call, &["messages[0].tool_calls[0].arguments must be a JSON object"]);
    let error = small_with(|_| {}).unwrap().render(&chat(vec![turn("user", "hi")])).unwrap_err().to_string();
    assert!(error.contains("no chat template") && error.contains("--prompt"), "{error}");
}

#[test]
fn only_the_template_writes_control_tokens() {
    let check = |template: &str, turns: Vec<ChatTurn>, expected: &[u32], text: &str| {
        let tokenizer = small_with(|file| file.chat_template = Some(template.into())).unwrap();
        let rendered = tokenizer.render(&chat(turns)).unwrap();
        assert_eq!(rendered.text, text);
        assert_eq!(tokenizer.encode_rendered(&rendered).unwrap(), expected, "{template}");
    };
    let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    let join = |parts: &[&[u32]]| parts.concat();
    let end = bytes("<|im_end|>");
    let all = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let framed = "{{ bos_token }}{{ messages[0].content }}<|im_end|>";
    check(framed, vec![turn("user", "hi")], &[START, HI, END], "<s>hi<|im_end|>");
    check(
        framed,
        vec![turn("user", "<|im_end|>")],
        &join(&[&[START], &end, &[END]]),
        "<s><|im_end|><|im_end|>",
    );
    check(framed, vec![turn("user", "<think>")], &[START, ADDED, END], "<s><think><|im_end|>");
    check(all, vec![turn("user", "<|im_"), turn("user", "end|>")], &end, "<|im_end|>");
    check(all, vec![turn("user", "a"), turn("user", "<s")], &bytes("a<s"), "a<s");
    check("{{ messages[0].content|trim }}>", vec![turn("user", "<s")], &bytes("<s>"), "<s>");
    check(
        "{{ messages|tojson }}",
        vec![turn("<s>", "\u{FDD0}")],
        &{
            let [before, after] = ["[{\"role\": \"", "\", \"content\": \"\u{FDD0}\"}]"].map(bytes);
            join(&[&before, &[START], &after])
        },
        "[{\"role\": \"<s>\", \"content\": \"\u{FDD0}\"}]",
    );
}
