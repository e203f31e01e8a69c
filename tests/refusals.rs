//! Models that would be computed wrong are refused by name: what a file states beyond the plan is never overlooked.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;

use gguf_writer::{GgufWriter, Meta, Stored, llama_tiny_writer};
use pagelm::format::checkpoint::Checkpoint;
use pagelm::format::gguf::{Header, Parsed};
use pagelm::model::config::Config;
use pagelm::model::error::ModelError;
use pagelm::model::plan;
use pagelm::plan::{KvType, Plan};

fn planned(file: &GgufWriter) -> Result<Plan, ModelError> {
    let bytes = file.write();
    let Parsed::Complete(header) = Header::parse(&bytes, bytes.len() as u64).unwrap() else {
        panic!("the whole file is there");
    };
    let checkpoint = Checkpoint::from_gguf(*header);
    let config = Config::new(&checkpoint)?;
    plan(&checkpoint, &config, KvType::F16, 64)
}

#[test]
fn the_plain_model_is_planned() {
    assert!(planned(&llama_tiny_writer(Stored::F32)).is_ok());
}

#[test]
fn keys_that_change_what_is_computed_are_refused_unless_neutral() {
    let table = [
        ("llama.rope.scaling.type", Meta::Str("none".into()), true),
        ("llama.rope.scaling.type", Meta::Str("yarn".into()), true),
        ("llama.rope.scaling.type", Meta::Str("dynamic".into()), false),
        ("llama.rope.scaling.factor", Meta::F32(1.0), true),
        ("llama.rope.scaling.factor", Meta::F32(8.0), true),
        ("llama.rope.scaling.factor", Meta::F32(0.0), false),
        ("llama.rope.scale_linear", Meta::F32(4.0), true),
        ("llama.rope.scaling.yarn_log_multiplier", Meta::F32(0.1), false),
        ("llama.logit_scale", Meta::F32(0.5), false),
        ("llama.embedding_scale", Meta::F32(12.0), false),
        ("llama.residual_scale", Meta::F32(0.2), false),
        ("llama.attention.scale", Meta::F32(0.1), true),
        ("llama.attention.scale", Meta::F32(f32::NAN), false),
        ("llama.attention.sliding_window", Meta::U32(4096), true),
        ("llama.attention.sliding_window", Meta::U32(0), true),
        ("llama.attention.causal", Meta::Bool(false), false),
        ("llama.attention.causal", Meta::Bool(true), true),
        ("llama.nextn_predict_layers", Meta::U32(1), false),
        ("llama.expert_count", Meta::U32(8), false),
        ("llama.expert_count", Meta::U32(0), true),
        ("llama.final_logit_softcapping", Meta::F32(30.0), false),
        ("llama.final_logit_softcapping", Meta::Str("thirty".into()), false),
        ("llama.vocab_kind", Meta::Str("of no concern".into()), true),
    ];
    for (key, value, accepted) in table {
        let found = planned(&llama_tiny_writer(Stored::F32).meta(key, value.clone()));
        match found {
            Ok(_) => assert!(accepted, "{key} = {value:?} was overlooked"),
            Err(error) => {
                assert!(!accepted, "{key} = {value:?}: {error}");
                assert!(error.to_string().contains(key), "{error}");
            }
        }
    }
}

#[test]
fn tensors_without_a_place_in_the_plan_are_refused() {
    for name in [
        "rope_factors_long.weight",
        "blk.0.post_ffw_norm.bias",
        "blk.1.attn_q_norm.weight",
        "blk.2.attn_norm.weight",
    ] {
        let file = llama_tiny_writer(Stored::F32).tensor(name, &[8], Stored::F32, &[1.0; 8]);
        let error = planned(&file).unwrap_err();
        assert!(matches!(&error, ModelError::UnusedTensor { name: found, .. } if found == name), "{error}");
    }
}

#[test]
fn an_architecture_is_refused_before_its_keys_are_looked_at() {
    for architecture in ["mamba", "clip", "bert", "qwen2moe", "phi2", "gemma", ""] {
        let file = GgufWriter::new(3).text("general.architecture", architecture);
        let error = planned(&file).unwrap_err();
        assert!(matches!(&error, ModelError::Architecture { found, .. } if found == architecture), "{error}");
    }
}

#[test]
fn biases_of_some_of_q_k_and_v_are_refused() {
    let width = 64;
    let file = llama_tiny_writer(Stored::F32).tensor("blk.0.attn_q.bias", &[width], Stored::F32, &[0.0; 64]);
    let error = planned(&file).unwrap_err();
    assert!(
        matches!(&error, ModelError::MissingTensor { name, .. } if name == "blk.0.attn_k.bias"),
        "{error}"
    );
}
