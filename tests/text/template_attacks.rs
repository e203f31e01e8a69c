//! Hostile chat templates end soon, with a sentence, on a stack as small as a browser's; long honest ones are not hit.

use std::time::{Duration, Instant};

use super::template::render;
use pagelm::text::ChatToolCall;

/// Renders on a thread with the stack of a worker in a browser.
fn render_small(template: String) -> Result<String, String> {
    let run = move || render(&template, |_| {}).map_err(|error| error.to_string());
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().expect("no panic")
}

fn check(template: String, words: &str) {
    let shown: String = template.chars().take(120).collect();
    let start = Instant::now();
    let error = render_small(template).expect_err(&shown);
    assert!(error.contains(words), "{words:?} is missing for {shown}: {error}");
    assert!(error.len() < 1000 && !error.contains('\n'), "{error}");
    assert!(start.elapsed() < Duration::from_secs(30), "{shown} took {:?}", start.elapsed());
}

#[test]
fn a_source_that_would_exhaust_the_compiler_is_refused() {
    let many = |part: &str| part.repeat(100_000);
    for part in ["~1", " and 1", " or 1", ".a", "()", "[0]", "**1", " is defined", "+1", "==1", "|upper"] {
        check(format!("{{{{ 1{} }}}}", part.repeat(20_000)), "at most");
        check(format!("{{{{ 1{} }}}}", many(part)), "at most");
    }
    for part in ["not ", "-", "(", "[", "{", "1 if 1 else ", "{'a':", "f("] {
        check(format!("{{{{ {}1 }}}}", part.repeat(20_000)), "at most");
    }
    check(format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}\n".repeat(20_000)), "at most 256");
    check("{% raw %}{% endraw %}\n".repeat(10_000), "at most 256");
    check("{% raw %}".repeat(20_000), "bytes in a line");
    check("{% raw %}\n".repeat(20_000), "unexpected end of raw");
    check("\n".repeat(70_000), "lines");
    check(many("{% raw %}"), "at most 262144");
    check("{% if 1 %}".repeat(4_000), "cannot be read");
    check("{{ 1 }}".repeat(5_000), "at most 4096 are");
}

#[test]
fn what_just_passes_the_scan_compiles_and_runs() {
    for part in ["~1", " and 1", ".a", "|upper", "()", "[0]", "**1", " is defined", "+1", "==1"] {
        let count = if part == "|upper" { 32 } else { 500 };
        // Whether it fails is the template's business; that it ends is ours.
        let _ = render_small(format!("{{{{ 1{} }}}}", part.repeat(count)));
    }
    for part in ["not ", "-", "1 if 1 else "] {
        let _ = render_small(format!("{{{{ {}1 }}}}", part.repeat(170)));
    }
    let elifs = format!("{{% if 0 %}}{}{{% endif %}}ok", "{% elif 0 %}".repeat(256));
    assert_eq!(render_small(elifs).as_deref(), Ok("ok"));
}

#[test]
fn values_that_grow_without_end_are_stopped() {
    let grow = |start: &str, step: &str, times: usize, end: &str| {
        format!(
            "{{% set ns = namespace(l={start}) %}}{{% for i in range({times}) %}}{step}{{% endfor %}}{end}"
        )
    };
    const DEEP: &str = "nested more than 64";
    check(grow("[1,2,3,4]", "{% set ns.l = ns.l + ns.l %}", 60, "{{ ns.l|length }}"), "stopped");
    check(grow("[1,2,3,4]", "{% set ns.l = ns.l * 2 %}", 60, "{{ ns.l|length }}"), "stopped");
    check(grow("[]", "{% set ns.l = [ns.l] %}", 100_000, ""), DEEP);
    check(grow("[]", "{% set ns.l = [ns.l] %}", 20_000, "{{ ns.l }}"), DEEP);
    check(grow("[]", "{% set ns.l = {'a': ns.l} %}", 20_000, ""), DEEP);
    check(grow("[]", "{% set ns.l = dict(a=ns.l) %}", 20_000, ""), DEEP);
    check(grow("[]", "{% set ns.l|default([ns.l], true) %}{% endset %}", 20_000, ""), DEEP);
    check(grow("[]", "{% set ns.l = [ns.l, ns.l] %}", 60, ""), "stopped");
    check(grow("1", "{% set ns.l = ns %}", 1, "{{ ns }}"), "a namespace cannot be held");
    check(grow("1", "{% set ns.l = [ns] %}", 1, "{{ ns == ns }}"), "a namespace cannot be held");
    check(grow("1", "{% set a, ns.l = 1, ns %}", 1, ""), "a namespace cannot be held");
    let call = |argument: &str, end: &str| {
        format!(
            "{{% macro f(x, n) %}}{{% if n %}}{{{{ f({argument}, n - 1) }}}}{{% else %}}{end}{{% endif %}}{{% endmacro %}}"
        )
    };
    check(call("x + x", "{{ x|length }}") + "{{ f([], 99) }}", "failed");
    check(call("x + x", "{{ x|length }}") + "{{ f([1], 99) }}", "failed");
    check(call("[[[[[[[[x]]]]]]]]", "{{ x }}") + "{{ f(1, 15) }}", DEEP);
    let nested: String = "{% with x = x + x %}".repeat(40);
    check(format!("{{% set x = [1] %}}{nested}{{{{ x|length }}}}{}", "{% endwith %}".repeat(40)), "stopped");
    check("{{ [[1], [2]]|sum }}".into(), "filter sum is unknown");
    check("{{ ('x' * 100000000) ~ 1 }}".into(), "stopped");
}

#[test]
fn own_functions_keep_to_the_budget() {
    check("{% set s = 'x' * 10000000 %}{{ range(1000)|list|tojson(separators=[s, s]) }}".into(), "separator");
    check("{{ ([['x' * 1000000]] * 50)|tojson }}".into(), "more than 4194304 bytes");
    check("{{ [range(50000)|list]|tojson(indent=999999999) ~ '' }}{{ 1 / 0 }}".into(), "");
    check("{{ strftime_now('%Y' * 5000000) }}".into(), "at most 1024");
    check("{{ raise_exception('x' * 10000000) }}".into(), "xxx…");
    check("{{ raise_exception('a\\n\\x1b[31mb') }}".into(), "a\\n\\u{1b}[31mb");
    check("{{ 1 \u{1b}[31m }}".into(), "cannot be read");
}

/// Tools as Llama 3.1 and Qwen3 write them, grown to the length of the longest published templates.
#[test]
fn long_honest_templates_are_not_hit() {
    let manual = "You may call \\\"functions\\\" {{ like }} {% this %} + * (one). ".repeat(300);
    let llama = format!(
        r#"{{{{- bos_token }}}}
{{%- if custom_tools is defined %}}
    {{%- set tools = custom_tools %}}
{{%- endif %}}
{{%- if not date_string is defined %}}
    {{%- set date_string = strftime_now("%d %b %Y") %}}
{{%- endif %}}
{{%- if messages[0]['role'] == 'system' %}}
    {{%- set system_message = messages[0]['content']|trim %}}
    {{%- set messages = messages[1:] %}}
{{%- else %}}
    {{%- set system_message = "" %}}
{{%- endif %}}
{{{{- "<|system|>\n" + "Today: " + date_string + "\n" + "{manual}" }}}}
{{%- if tools is not none %}}
    {{%- for t in tools %}}
        {{{{- t | tojson(indent=4) + "\n\n" }}}}
    {{%- endfor %}}
{{%- endif %}}
{{{{- system_message }}}}
{{%- for message in messages %}}
    {{%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}}
        {{{{- '<|' + message['role'] + '|>\n' + message['content'] | trim + '<|end|>' }}}}
    {{%- elif 'tool_calls' in message %}}
        {{%- if not message.tool_calls|length == 1 %}}
            {{{{- raise_exception("one call at a time!") }}}}
        {{%- endif %}}
        {{%- set tool_call = message.tool_calls[0].function %}}
        {{{{- '{{"name": "' + tool_call.name + '", "parameters": ' + (tool_call.arguments | tojson) + '}}' }}}}
    {{%- endif %}}
{{%- endfor %}}"#
    );
    let qwen = r#"{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1, seen=[]) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
    {%- set ns.seen = ns.seen + [message.role] %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- set reasoning, answer = '', content %}
    {%- if '</think>' in content %}
        {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- message.role + ':' + reasoning + content }}
{%- endfor %}
{{- ' ' ~ ns.last_query_index ~ ' ' ~ ns.seen|length ~ ' ' ~ ns.seen }}"#;
    let long =
        format!("{}{}", "{% if false %}{{ 'padding of a tag' + bos_token }}{% endif %}\n".repeat(800), qwen);
    let fill = |chat: &mut pagelm::text::Chat| {
        chat.tools = vec![r#"{"type":"function","function":{"name":"weather"}}"#.into()];
        let mut answer = super::turn("assistant", "<think>\nso\n</think>\nyes");
        answer.tool_calls =
            vec![ChatToolCall { id: "1".into(), name: "w".into(), arguments: r#"{"a":[1]}"#.into() }];
        chat.turns.push(answer);
    };
    let text = render(&llama, fill).unwrap();
    assert!(text.contains("{{ like }} {% this %} + * (one)"), "{text}");
    assert!(text.contains(r#"{"name": "w", "parameters": {"a": [1]}}"#) && text.contains("\"weather\""));
    for template in [qwen, &long] {
        let text = render(template, fill).unwrap();
        assert_eq!(text.trim_start(), "user:hiassistant:soyes 0 2 ['assistant', 'user']");
    }
    let grow = "{% set ns = namespace(l=[]) %}{% for m in messages %}{% set ns.l = ns.l + [m] %}{% endfor %}{{ ns.l|length }}";
    let many = render(grow, |chat| chat.turns = vec![super::turn("user", "hi"); 1000]);
    assert_eq!(many.as_deref(), Ok("1000"), "a list of a long conversation may be made step by step");
}

#[test]
fn a_hostile_template_does_not_hinder_raw_text() {
    let source = format!("{{{{ 1{} }}}}", "+1".repeat(400_000));
    let tokenizer = super::small_with(|file| file.chat_template = Some(source)).unwrap();
    assert!(tokenizer.has_template());
    assert_eq!(tokenizer.encode_text("hi").unwrap(), [super::HI]);
}
