//! Bad input: each gets exit code 2 and a sentence that names the cause, before anything is loaded.

use super::{FILES, file, run};
use crate::gguf_writer::llama_tiny_gguf;

/// Refused with exit code 2, nothing on stdout, and a sentence that holds `expected`.
fn check_refused(arguments: &[&str], expected: &str) {
    let ran = run(arguments);
    assert_eq!(ran.code, Some(2), "{arguments:?}: {}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.stdout, "", "{arguments:?}");
    assert_eq!(ran.stderr.matches("pagelm: ").count(), 1, "{arguments:?}: {}", ran.stderr);
    assert!(ran.stderr.contains(expected), "{arguments:?}: {} instead of {expected:?}", ran.stderr);
}

#[test]
fn bad_command_lines_are_refused() {
    let model = file("tiny.gguf");
    let model = model.as_str();
    let table: [(&[&str], &str); 27] = [
        (&[], "a command is missing\nusage: pagelm COMMAND"),
        (
            &["genrate"],
            "there is no command \"genrate\"; did you mean generate?\nusage: pagelm generate --model PATH",
        ),
        (&["serve-the-web"], "there is no command \"serve-the-web\"\nusage: pagelm COMMAND"),
        (&["--json", "info"], "the command comes first, before --json"),
        (&["help", "me"], "there is no command \"me\""),
        (&["generate", "--prompt", "a"], "--model PATH is missing\nusage: pagelm generate"),
        (&["generate", "--model", model], "--messages FILE.json or --prompts FILE, is missing"),
        (&["generate", "--model", model, "--prompt"], "--prompt has no value: it takes TEXT"),
        (
            &["generate", "--model", model, "--prompt", "a", "--messages", "b"],
            "--prompt and --messages are given together, but only one of them is answered",
        ),
        (
            &["generate", "--model", model, "--prompts", "a", "--prompt", "b", "--messages", "c"],
            "--prompt, --messages and --prompts are given together",
        ),
        (&["generate", "--model", model, "--prompts"], "--prompts has no value: it takes FILE"),
        (
            &["generate", "--model", model, "--prompt", "a", "--n", "0"],
            "n must be a whole number from 1 to 64; found \"0\"",
        ),
        (
            &["generate", "--model", model, "--prompt", "a", "--n", "65"],
            "n must be a whole number from 1 to 64; found \"65\"",
        ),
        (
            &["chat", "--model", model, "--prompts", "a"],
            "`pagelm chat` takes no --prompts, which belongs to generate",
        ),
        (
            &["bench", "--model", model, "--turns", "2", "--sequences", "1"],
            "--sequences and --turns are both given",
        ),
        (&["generate", "--model", model, "hello"], "a prompt is given as --prompt \"hello\""),
        (&["generate", "--model", model, "--promt", "a"], "unknown option --promt; did you mean --prompt?"),
        (
            &["generate", "--model", model, "--frobnicate"],
            "unknown option --frobnicate\nusage: pagelm generate",
        ),
        (&["generate", "--model", model, "-x"], "unknown option -x"),
        (
            &["score", "--model", model, "--temperature", "0"],
            "`pagelm score` takes no --temperature, which belongs to generate and chat",
        ),
        (&["score", "--model", model], "--text FILE is missing"),
        (&["tokenize", "--model", model], "the TEXT to tokenize is missing"),
        (&["tokenize", "--model", model, "a", "b"], "\"b\" is another; quote a text with spaces"),
        (
            &["bench", "--model", model, "--sequences", "1,0"],
            "--sequences must be a whole number of 1 or more; found \"0\"",
        ),
        (
            &["bench", "--model", model, "--runs", "x"],
            "--runs must be a whole number from 1 to 10000; found \"x\"",
        ),
        (&["info", "--model", model, "--kv", "f8"], "--kv must be one of f16, f32, q8; found \"f8\""),
        (&["info", "--model", model, "--json=yes"], "--json must be one of true, false; found \"yes\""),
    ];
    table.iter().for_each(|(arguments, expected)| check_refused(arguments, expected));
}

#[test]
fn bad_models_are_refused_by_every_command() {
    let folder = FILES.folder.to_str().unwrap();
    let models = [
        (file("nothing.gguf"), "cannot read"),
        (folder.to_owned(), "the folder has several models"),
        (file("empty.gguf"), "empty.gguf"),
        (file("text.gguf"), "this is not a GGUF file"),
        (file("cut3.gguf"), "cut3.gguf"),
        (file("cut100.gguf"), "a file of 100 bytes has room for"),
        (file("cut20000.gguf"), "truncated"),
        (file(&format!("cut{}.gguf", llama_tiny_gguf().len() - 1)), "truncated"),
    ];
    let score = file("score.txt");
    for (model, expected) in &models {
        let commands: [&[&str]; 6] = [
            &["info"],
            &["tokenize", "a"],
            &["generate", "--prompt", "a"],
            &["score", "--text", &score],
            &["bench"],
            &["chat"],
        ];
        for command in commands {
            check_refused(&[command, &["--model", model]].concat(), expected);
        }
    }
}

#[test]
fn bad_prompts_are_refused() {
    let (model, chat) = (file("tiny.gguf"), file("chat.gguf"));
    let long = "word ".repeat(2000);
    let file = |name: &str| file(name);
    let table: [(&str, &[&str], &str); 17] = [
        ("generate", &["--prompt", "a", "--threads", "0"], "--threads must be"),
        ("generate", &["--prompt", ""], "the prompt has no tokens"),
        (
            "generate",
            &["--prompt", &long],
            "and the context of 512 tokens must also hold at least one of the answer",
        ),
        ("generate", &["--prompt", "a b c d e f g h", "--context", "4"], "the context of 4 tokens"),
        ("generate", &["--prompt", "a", "--context", "513"], "it must lie between 2 and 512"),
        ("generate", &["--prompt", "a", "--context", "1"], "it must lie between 2 and 512"),
        ("generate", &["--prompt", "a", "--precision", "half"], "--precision must be"),
        ("generate", &["--prompt", "a", "--adapter-name", "no such GPU"], "has \"no such GPU\" in its name"),
        ("generate", &["--messages", &file("messages.json")], "the model has no chat template"),
        ("generate", &["--messages", &file("nothing.json")], "cannot read"),
        ("generate", &["--messages", &file("broken.json")], "broken.json: it is not JSON"),
        ("generate", &["--messages", &file("object.json")], "object.json: it must be an array of messages"),
        (
            "generate",
            &["--messages", &file("image.json")],
            "messages[0].content[0] must be {\"type\": \"text\"",
        ),
        ("score", &["--text", &file("short.txt")], "has 1 token, but a score needs at least 2"),
        ("score", &["--text", &file("latin1.txt")], "is not UTF-8 text, from byte 3 on"),
        ("score", &["--text", &file("long.txt")], "the model reads 512 at most: cut the text"),
        ("chat", &[], "the model has no chat template"),
    ];
    for (command, arguments, expected) in table {
        check_refused(&[&[command, "--model", &model], arguments].concat(), expected);
    }
    check_refused(
        &["generate", "--model", &chat, "--messages", &file("none.json")],
        "the conversation has no messages",
    );
    check_refused(
        &["score", "--model", &model, "--text", &file("score.txt"), "--context", "9"],
        "give --context 20 or more",
    );
    check_refused(
        &["bench", "--model", &model, "--prompt-tokens", "500"],
        "make 532 tokens, but the context holds 512",
    );
    check_refused(
        &["bench", "--model", &model, "--sequences", "1,4000"],
        "--sequences 4000 was asked for, but 64",
    );
}

#[test]
fn bad_files_of_prompts_are_refused_before_a_model_is_opened() {
    let nothing = file("nothing.gguf");
    let table: [(&str, &[u8], &str); 6] = [
        ("none.txt", b"\n  \n", "none.txt: there is no prompt in it; write one JSON string a line"),
        ("plain.txt", b"\"a\"\n\nOnce upon a time\n", "plain.txt: line 3 must be a JSON string, such as"),
        ("plain.txt", b"Once upon a time\n", "found Once upon a time (expected value at column 1)"),
        ("object.txt", b"\"a\"\n{\"prompt\": \"a\"}\n", "line 2 must be a JSON string"),
        ("cut.txt", b"\"a", "found \"a (EOF while parsing a string at column 2)"),
        ("latin1.txt", b"\"caf\xe9\"", "latin1.txt is not UTF-8 text, from byte 4 on"),
    ];
    for (name, bytes, expected) in table {
        FILES.write(&format!("bad-{name}"), bytes);
        let prompts = file(&format!("bad-{name}"));
        check_refused(&["generate", "--model", &nothing, "--prompts", &prompts], expected);
    }
    check_refused(&["generate", "--model", &nothing, "--prompts", &file("nothing.txt")], "nothing.txt");
}

#[test]
fn a_bad_prompt_of_many_is_refused_by_its_number() {
    let model = file("tiny.gguf");
    let long = "word ".repeat(2000);
    for (name, text, expected) in [
        ("long", format!("\"a\"\n\n\"b\"\n\"{long}\"\n"), "prompt 3: the prompt has"),
        ("empty", "\"a\"\n\"\"\n".to_owned(), "prompt 2: the prompt has no tokens"),
    ] {
        FILES.write(&format!("{name}-prompt.txt"), text.as_bytes());
        let prompts = file(&format!("{name}-prompt.txt"));
        check_refused(&["generate", "--model", &model, "--prompts", &prompts], expected);
    }
    check_refused(
        &["bench", "--model", &model, "--turns", "2"],
        "--turns 2 of --max-tokens 32 after --prompt-tokens 1000 make 1088 tokens, but the context holds 512",
    );
}

#[test]
fn sampling_options_out_of_range_are_refused_by_name() {
    let model = file("tiny.gguf");
    for (option, value, expected) in [
        ("--temperature", "-0.5", "temperature must be a finite number of 0 or more; found -0.5"),
        ("--temperature", "inf", "temperature must be a finite number of 0 or more"),
        ("--temperature", "warm", "temperature must be a finite number of 0 or more; found \"warm\""),
        ("--top-k", "-2", "top_k must be 0 or -1 to keep all tokens, or 1 or more; found -2"),
        ("--top-k", "1.5", "top_k must be a whole number"),
        ("--top-p", "0", "top_p must be greater than 0 and at most 1; found 0"),
        ("--top-p", "1.5", "top_p must be greater than 0 and at most 1; found 1.5"),
        ("--min-p", "-0.1", "min_p must be from 0 to 1; found -0.1"),
        ("--repetition-penalty", "0", "repetition_penalty must be a finite number greater than 0; found 0"),
        ("--presence-penalty", "2.5", "presence_penalty must be from -2 to 2; found 2.5"),
        ("--frequency-penalty", "nan", "frequency_penalty must be from -2 to 2; found NaN"),
        ("--seed", "-1", "seed must be a whole number from 0"),
        ("--max-tokens", "0", "max_tokens must be 1 or more; found 0"),
        ("--max-tokens", "-1", "max_tokens must be a whole number of 1 or more; found \"-1\""),
        ("--min-tokens", "17", "min_tokens must be at most max_tokens, which is 16; found 17"),
        ("--stop", "", "stop string 0 is empty"),
        ("--stop-token-ids", "1,384", "stop_token_ids must be made of token ids from 0 to 383; found 384"),
        ("--stop-token-ids", "1;2", "stop_token_ids must be token ids with commas between"),
        ("--bad-words", "", "bad_words must be made of words of at least one token"),
        ("--logit-bias", "1=100.5", "logit_bias must be from -100 to 100 for each token; found 100.5"),
        ("--logit-bias", "384=1", "logit_bias must be made of token ids from 0 to 383; found 384"),
        ("--logit-bias", "5", "logit_bias must be a token id, =, and a number from -100 to 100"),
        ("--logprobs", "21", "logprobs must be from 0 to 20; found 21"),
        ("--prompt-logprobs", "21", "prompt_logprobs must be from 0 to 20; found 21"),
    ] {
        check_refused(&["generate", "--model", &model, "--prompt", "a", option, value], expected);
    }
}
