/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotations as config.json describes them. Up to version 4 of Transformers the
 * base is rope_theta and the scaling, if there is one, rope_scaling; from 5 on
 * both are in rope_parameters.
 */
#include "nn/model.h"

#include "nn/check.h"

#include <inttypes.h>

/** An entry of a scaling that has to be there. */
static attn_status read_factor(const struct config *scaling, attn_rope_config *rope)
{
    CHECK(config_number(scaling, "factor", &rope->factor));
    return rope->factor >= 1 ? ATTN_OK
                             : io_fail(ATTN_INVALID_FILE, "%s: 'factor' of the rotations is %g; expected 1 or more",
                                       scaling->path, rope->factor);
}

static attn_status read_yarn(attn_rope_config *rope, const struct config *scaling, const struct config *config)
{
    bool truncate = true;
    rope->scaling = ATTN_ROPE_YARN;
    CHECK(read_factor(scaling, rope));
    CHECK(nn_model_expect_off(scaling, "mscale"));
    CHECK(nn_model_expect_off(scaling, "mscale_all_dim"));
    CHECK(config_integer_or(config, "max_position_embeddings", 1, &rope->original_length));
    CHECK(config_integer_or(scaling, "original_max_position_embeddings", 1, &rope->original_length));
    CHECK(config_number_or(scaling, "beta_fast", &rope->beta_fast));
    CHECK(config_number_or(scaling, "beta_slow", &rope->beta_slow));
    CHECK(config_number_or(scaling, "attention_factor", &rope->attention_factor));
    CHECK(config_boolean_or(scaling, "truncate", &truncate));
    rope->no_truncation = !truncate;
    return ATTN_OK;
}

static attn_status read_llama3(attn_rope_config *rope, const struct config *scaling)
{
    rope->scaling = ATTN_ROPE_LLAMA3;
    CHECK(read_factor(scaling, rope));
    CHECK(config_integer(scaling, "original_max_position_embeddings", 1, &rope->original_length));
    CHECK(config_number(scaling, "low_freq_factor", &rope->low_freq_factor));
    return config_number(scaling, "high_freq_factor", &rope->high_freq_factor);
}

static attn_status read_scaling(attn_rope_config *rope, const struct config *scaling, const char *place,
                                const struct config *config)
{
    const char *type = "default", *name = config_has(scaling, "rope_type") ? "rope_type" : "type";
    CHECK(config_text_or(scaling, name, &type));
    CHECK(config_number_or(scaling, "rope_theta", &rope->base));
    if (strcmp(type, "default") == 0)
        return ATTN_OK;
    if (strcmp(type, "yarn") == 0)
        return read_yarn(rope, scaling, config);
    if (strcmp(type, "llama3") == 0)
        return read_llama3(rope, scaling);
    if (strcmp(type, "linear") != 0)
        return io_fail(ATTN_UNSUPPORTED, "%s: '%s' of '%s' is '%s'; expected default, linear, yarn or llama3",
                       config->path, name, place, type);
    rope->scaling = ATTN_ROPE_LINEAR;
    return read_factor(scaling, rope);
}

attn_status nn_model_read_rope(attn_rope_config *rope, const struct config *config, int64_t head_dim)
{
    static const char *const places[] = {"rope_scaling", "rope_parameters"};
    double part = 1;
    *rope = attn_rope_config_default();
    rope->base = 10000;
    CHECK(config_number_or(config, "rope_theta", &rope->base));
    CHECK(config_number_or(config, "partial_rotary_factor", &part));
    for (int i = 0; i < 2; i++) {
        const struct config scaling = {json_object_get(config->root, places[i]), config->path};
        if (!config_has(config, places[i]))
            continue;
        if (!json_is_object(scaling.root))
            return nn_model_refuse(config, places[i], "an object or null");
        CHECK(config_number_or(&scaling, "partial_rotary_factor", &part));
        CHECK(read_scaling(rope, &scaling, places[i], config));
    }
    rope->pairs = (int64_t)((double)head_dim * part) / 2;
    if (!(part > 0 && part <= 1) || rope->pairs < 1)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: 'partial_rotary_factor' is %g of heads of %" PRId64 "; expected a part that has channels",
                       config->path, part, head_dim);
    return rope->base >= 1
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE, "%s: 'rope_theta' is %g; expected 1 or more", config->path, rope->base);
}
