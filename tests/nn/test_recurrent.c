/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LSTM and Bahdanau's step: against the oracle over layers, directions,
 * lengths and initial states; chunks of a sequence against the whole; equal
 * bits; wrong arguments.
 */
#include "named.h"
#include "options.h"

enum { MAX_PARTS = 6 };

struct layer {
    attn_lstm_config config;
    attn_lstm_weights weights[MAX_PARTS];
    struct oracle_lstm_weights oracle_weights[MAX_PARTS];
    struct oracle_lstm oracle;
    attn_lstm *lstm;
};

static void layer_create(struct layer *l, struct memory *m, int64_t layers, int bidirectional)
{
    struct rng *rng = &m->rng;
    memset(l, 0, sizeof *l);
    l->config = attn_lstm_config_default();
    l->config.input = RNG_PICK(rng, 1, 3, 8, 15, 17, 24);
    l->config.hidden = RNG_PICK(rng, 1, 2, 7, 8, 9, 16, 17, 25, 48);
    l->config.layers = layers == 1 && rng_percent(rng, 50) ? 0 : layers;
    l->config.bidirectional = bidirectional ? (int)rng_range(rng, 1, 2) : 0;
    const int64_t directions = bidirectional ? 2 : 1, hidden = l->config.hidden;
    l->oracle = (struct oracle_lstm){l->config.input, hidden, layers, directions, l->oracle_weights};
    for (int64_t p = 0; p < layers * directions; p++) {
        const int64_t inputs = p < directions ? l->config.input : directions * hidden;
        attn_lstm_weights *w = &l->weights[p];
        struct oracle_lstm_weights *o = &l->oracle_weights[p];
        w->w_ih = random_matrix(m, random_dtype(m), 4 * hidden, inputs, 1 / sqrt((double)inputs));
        w->w_hh = random_matrix(m, random_dtype(m), 4 * hidden, hidden, 1 / sqrt((double)hidden));
        o->w_ih = read_all(m, &w->w_ih);
        o->w_hh = read_all(m, &w->w_hh);
        if (rng_percent(rng, 70)) {
            w->b_ih = random_vector(m, random_dtype(m), 4 * hidden, 0.5, 0);
            o->b_ih = read_all(m, &w->b_ih);
        }
        if (rng_percent(rng, 70)) {
            w->b_hh = random_vector(m, random_dtype(m), 4 * hidden, 0.5, 0);
            o->b_hh = read_all(m, &w->b_hh);
        }
    }
    OK(attn_lstm_create(&l->lstm, &l->config, l->weights));
}

static int64_t *random_lengths(struct memory *m, int64_t batch, int64_t tokens)
{
    if (rng_percent(&m->rng, 40))
        return NULL;
    int64_t *lengths = bytes(m, (size_t)batch * sizeof *lengths);
    for (int64_t b = 0; b < batch; b++)
        lengths[b] = rng_range(&m->rng, 0, tokens);
    return lengths;
}

static void test_lstm(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(120); n++) {
        struct memory *m = memory_create("recurrent lstm", n);
        run_in(m, random_activations(m));
        const int64_t layers = rng_range(&m->rng, 1, 3), batch = RNG_PICK(&m->rng, 0, 1, 2, 5, 9);
        const int64_t tokens = RNG_PICK(&m->rng, 0, 1, 2, 7, 20, 70); /* 70 are two chunks of 5 sequences */
        struct layer l;
        layer_create(&l, m, layers, rng_percent(&m->rng, 50));
        const int64_t hidden = l.config.hidden, directions = l.oracle.directions, parts = layers * directions;
        const attn_tensor x = random_rows(m, batch, tokens, l.config.input);
        const attn_tensor out = place_rows(m, batch, tokens, directions * hidden);
        const int64_t *lengths = random_lengths(m, batch, tokens);
        for (int64_t b = 0; b < batch && lengths; b++) /* padding may hold anything */
            for (int64_t t = lengths[b]; t < tokens; t++)
                for (int64_t c = 0; c < l.config.input; c++)
                    tensor_set(&x, b, 0, t, c, c % 2 ? NAN : INFINITY);
        const int has_state = rng_percent(&m->rng, 60);
        const attn_tensor its_state =
            place_rows_of(m, rng_percent(&m->rng, 50) ? m->dtype : ATTN_F32, 2, parts * batch, hidden);
        if (has_state) {
            fill(m, &its_state, 0.5);
            mark_output(m, &its_state);
        }
        struct trio h = trio(m, parts * batch * hidden), c = trio(m, parts * batch * hidden);
        const struct trio y = trio(m, batch * tokens * directions * hidden);
        const double *xs = read_all(m, &x);
        for (int k = 0; k < ORACLES; k++) {
            if (has_state) {
                const double *both = read_all(m, &its_state);
                memcpy(h.of[k], both, (size_t)(parts * batch * hidden) * sizeof *both);
                memcpy(c.of[k], both + parts * batch * hidden, (size_t)(parts * batch * hidden) * sizeof *both);
            }
            oracle_take(k)->lstm(&l.oracle, batch, tokens, xs, lengths, h.of[k], c.of[k], y.of[k]);
        }
        memory_seal(m);
        const size_t size = attn_lstm_workspace_size(l.lstm, batch, tokens);
        void *workspace = n % 2 ? place_workspace(m, size) : NULL;
        OK(attn_lstm_forward(l.lstm, &x, lengths, has_state ? &its_state : NULL, &out, (int)(n % 4), workspace,
                             workspace ? size : 0));
        judge(NN_RECURRENT, "out", &out, y.of, NULL);
        for (int64_t b = 0; b < batch; b++)
            for (int64_t t = lengths ? lengths[b] : tokens; t < tokens; t++)
                for (int64_t i = 0; i < directions * hidden; i++)
                    assert_true(tensor_get(&out, b, 0, t, i) == 0);
        /* Out of another type is this, rounded. */
        if (!has_state) {
            const attn_tensor wide = place_rows_of(m, ATTN_F32, batch, tokens, directions * hidden);
            const attn_tensor narrow = place_rows_of(m, ATTN_BF16, batch, tokens, directions * hidden);
            OK(attn_lstm_forward(l.lstm, &x, lengths, NULL, &wide, 1, workspace, workspace ? size : 0));
            OK(attn_lstm_forward(l.lstm, &x, lengths, NULL, &narrow, 1, workspace, workspace ? size : 0));
            assert_rounded("out", &out, &wide);
            assert_rounded("out in bf16", &narrow, &wide);
        }
        if (has_state) {
            attn_tensor part = its_state;
            part.shape[0] = 1;
            judge(NN_RECURRENT, "h", &part, h.of, NULL);
            part.data = advanced(&its_state, its_state.stride[0]).data;
            judge(NN_RECURRENT, "c", &part, c.of, NULL);
        }
        attn_lstm_destroy(l.lstm);
        memory_destroy(m);
    }
    attn_lstm_destroy(NULL);
}

/** The state carries a sequence from one call to the next, to the bit; so do other neighbours and threads. */
static void test_lstm_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(30); n++) {
        struct memory *m = memory_create("recurrent lstm_bits", n);
        run_in(m, random_activations(m));
        const int64_t batch = 7, tokens = 12, layers = rng_range(&m->rng, 1, 2), first = rng_range(&m->rng, 0, tokens);
        struct layer l;
        layer_create(&l, m, layers, 0);
        const int64_t hidden = l.config.hidden;
        const attn_tensor x = random_rows(m, batch, tokens, l.config.input),
                          whole = place_rows(m, batch, tokens, hidden);
        const attn_tensor chunks = place_rows(m, batch, tokens, hidden),
                          its_state = place_dense(m, 2, 1, layers * batch, hidden);
        OK(attn_lstm_forward(l.lstm, &x, NULL, NULL, &whole, 1, NULL, 0));
        memset(its_state.data, 0, (size_t)(2 * layers * batch * hidden) * sizeof(float));
        for (int part = 0; part < 2; part++) {
            attn_tensor some = x, out = chunks;
            some.shape[2] = out.shape[2] = part ? tokens - first : first;
            some.data = advanced(&x, part ? first * x.stride[2] : 0).data;
            out.data = advanced(&chunks, part ? first * chunks.stride[2] : 0).data;
            OK(attn_lstm_forward(l.lstm, &some, NULL, &its_state, &out, 2 + part, NULL, 0));
        }
        assert_true(equal_bits(&whole, &chunks));
        for (int64_t b = 0; b < batch; b++) {
            const attn_tensor one = slice(&x, b, 0, tokens), out = place_rows(m, 1, tokens, hidden);
            const attn_tensor expected = slice(&whole, b, 0, tokens);
            OK(attn_lstm_forward(l.lstm, &one, NULL, NULL, &out, (int)(b % 4), NULL, 0));
            assert_true(equal_bits(&out, &expected));
        }
        attn_lstm_destroy(l.lstm);
        memory_destroy(m);
    }
}

/** A sequence that is NaN from its third token on is so alone. */
static void test_lstm_nan(void **state)
{
    (void)state;
    struct memory *m = memory_create("recurrent lstm_nan", 0);
    struct layer l;
    layer_create(&l, m, 2, 0);
    const attn_tensor x = random_rows(m, 3, 5, l.config.input), clean = place_rows(m, 3, 5, l.config.hidden);
    const attn_tensor out = place_rows(m, 3, 5, l.config.hidden);
    OK(attn_lstm_forward(l.lstm, &x, NULL, NULL, &clean, 1, NULL, 0));
    tensor_set(&x, 1, 0, 2, 0, NAN);
    OK(attn_lstm_forward(l.lstm, &x, NULL, NULL, &out, 1, NULL, 0));
    for (int64_t b = 0; b < 3; b++)
        for (int64_t t = 0; t < 5; t++)
            for (int64_t c = 0; c < l.config.hidden; c++)
                assert_true(b == 1 && t >= 2 ? isnan(tensor_get(&out, b, 0, t, c))
                                             : tensor_get(&out, b, 0, t, c) == tensor_get(&clean, b, 0, t, c));
    attn_lstm_destroy(l.lstm);
    memory_destroy(m);
}

static void test_lstm_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("recurrent lstm_refuses", 0);
    attn_lstm_config config = attn_lstm_config_default();
    config.input = 3, config.hidden = 2, config.bidirectional = 1;
    attn_lstm_weights weights[2];
    for (int i = 0; i < 2; i++)
        weights[i] = (attn_lstm_weights){place_dense(m, 1, 1, 8, 3), place_dense(m, 1, 1, 8, 2),
                                         place_dense(m, 1, 1, 1, 8), place_dense(m, 1, 1, 1, 8)};
    const attn_tensor x = place_dense(m, 2, 1, 5, 3), out = place_dense(m, 2, 1, 5, 4), s = place_dense(m, 2, 1, 4, 2);
    for (int i = 0; i < m->num_buffers; i++)
        fill(m, &m->buffers[i].tensor, 0.3);
    attn_lstm *lstm = (attn_lstm *)m;
    memory_seal(m);
#define CREATE_REFUSES(assignment, status, words)                                                                      \
    do {                                                                                                               \
        attn_lstm_config c = config;                                                                                   \
        attn_lstm_weights w[2] = {weights[0], weights[1]};                                                             \
        assignment;                                                                                                    \
        lstm = (attn_lstm *)m;                                                                                         \
        REFUSES(m, attn_lstm_create(&lstm, &c, w), status, words);                                                     \
        assert_null(lstm);                                                                                             \
    } while (0)
    REFUSES(m, attn_lstm_create(NULL, &config, weights), ATTN_INVALID_ARGUMENT,
            "lstm is NULL; expected where to put the LSTM");
    REFUSES(m, attn_lstm_create(&lstm, NULL, weights), ATTN_INVALID_ARGUMENT,
            "config is NULL; expected the sizes of an LSTM");
    REFUSES(m, attn_lstm_create(&lstm, &config, NULL), ATTN_INVALID_ARGUMENT,
            "weights is NULL; expected 2 sets of weights");
    CREATE_REFUSES(c.struct_size = 1, ATTN_INVALID_ARGUMENT, "struct_size|1");
    CREATE_REFUSES(c.input = -3, ATTN_INVALID_ARGUMENT, "input|-3");
    CREATE_REFUSES(c.hidden = 0, ATTN_INVALID_ARGUMENT, "hidden|0");
    CREATE_REFUSES(c.hidden = -2, ATTN_INVALID_ARGUMENT, "hidden|-2");
    CREATE_REFUSES(c.layers = -1, ATTN_INVALID_ARGUMENT, "layers|-1");
    CREATE_REFUSES(w[0].w_ih.data = NULL, ATTN_INVALID_ARGUMENT, "weights[0].w_ih|NULL");
    CREATE_REFUSES(w[1].w_ih.shape[2] = 7, ATTN_SHAPE_MISMATCH, "weights[1].w_ih|7|8");
    CREATE_REFUSES(w[1].w_hh.shape[3] = 3, ATTN_SHAPE_MISMATCH, "weights[1].w_hh|3|2");
    CREATE_REFUSES(w[0].w_hh.dtype = ATTN_I8, ATTN_UNSUPPORTED, "weights[0].w_hh|i8");
    CREATE_REFUSES(w[0].b_ih.shape[3] = 2, ATTN_SHAPE_MISMATCH, "weights[0].b_ih|2|8");
    CREATE_REFUSES(w[1].b_hh.dtype = (attn_dtype)77, ATTN_INVALID_ARGUMENT, "weights[1].b_hh|77");
    OK(attn_lstm_create(&lstm, &config, weights));
#define FORWARD(xx, lengths, ss, oo) attn_lstm_forward(lstm, xx, lengths, ss, oo, 0, NULL, 0)
#define X(assignment)                CHANGED(attn_tensor, x, assignment)
#define OUT(assignment)              CHANGED(attn_tensor, out, assignment)
#define STATE(assignment)            CHANGED(attn_tensor, s, assignment)
    const int64_t lengths[2] = {2, 6}, negative[2] = {-1, 0};
    REFUSES(m, attn_lstm_forward(NULL, &x, NULL, &s, &out, 0, NULL, 0), ATTN_INVALID_ARGUMENT,
            "lstm is NULL; expected an LSTM");
    REFUSES(m, FORWARD(NULL, NULL, &s, &out), ATTN_INVALID_ARGUMENT, "x |NULL");
    REFUSES(m, FORWARD(&x, NULL, &s, NULL), ATTN_INVALID_ARGUMENT, "out|NULL");
    REFUSES(m, FORWARD(&x, lengths, &s, &out), ATTN_INVALID_ARGUMENT, "lengths[1]|6|5");
    REFUSES(m, FORWARD(&x, negative, &s, &out), ATTN_INVALID_ARGUMENT, "lengths[0]|-1");
    REFUSES(m, FORWARD(X(shape[3] = 2), NULL, &s, &out), ATTN_SHAPE_MISMATCH, "x.|2|3");
    REFUSES(m, FORWARD(X(dtype = ATTN_I8), NULL, &s, &out), ATTN_UNSUPPORTED, "x.|i8");
    REFUSES(m, FORWARD(X(stride[3] = 0), NULL, &s, &out), ATTN_INVALID_ARGUMENT, "x.|0");
    REFUSES(m, FORWARD(&x, NULL, STATE(shape[2] = 2), &out), ATTN_SHAPE_MISMATCH, "state|2|4");
    REFUSES(m, FORWARD(&x, NULL, STATE(shape[0] = 1), &out), ATTN_SHAPE_MISMATCH, "state|1|2");
    REFUSES(m, FORWARD(&x, NULL, STATE(shape[3] = 3), &out), ATTN_SHAPE_MISMATCH, "state|3|2");
    REFUSES(m, FORWARD(&x, NULL, STATE(stride[2] = 0), &out), ATTN_INVALID_ARGUMENT, "state|0");
    REFUSES(m, FORWARD(&x, NULL, &s, OUT(shape[3] = 2)), ATTN_SHAPE_MISMATCH, "out|2|4");
    REFUSES(m, FORWARD(&x, NULL, &s, OUT(data = x.data)), ATTN_INVALID_ARGUMENT, "out|x");
    REFUSES(m, FORWARD(&x, NULL, STATE(data = out.data), &out), ATTN_INVALID_ARGUMENT, "out|state");
    REFUSES(m, FORWARD(&x, NULL, STATE(data = x.data), &out), ATTN_INVALID_ARGUMENT, "state|x");
    REFUSES(m, attn_lstm_forward(lstm, &x, NULL, &s, &out, -2, NULL, 0), ATTN_INVALID_ARGUMENT, "num_threads|-2");
    const size_t size = attn_lstm_workspace_size(lstm, 2, 5);
    char *workspace = bytes(m, size);
    REFUSES(m, attn_lstm_forward(lstm, &x, NULL, &s, &out, 0, workspace, 1), ATTN_WORKSPACE_TOO_SMALL, "workspace");
    const size_t least = said_least();
    assert_true(least <= size); /* which is enough for other types, too */
    if (size > 0)
        REFUSES(m, attn_lstm_forward(lstm, &x, NULL, &s, &out, 0, workspace, least - 1), ATTN_WORKSPACE_TOO_SMALL,
                "workspace");
    assert_true(attn_lstm_workspace_size(lstm, INT64_MAX / 4, INT64_MAX / 4) == SIZE_MAX);
    nn_end_refusals();
    attn_lstm_destroy(lstm);
    memory_destroy(m);
}

/** The names of nn.LSTM, with biases and without; each tensor missing or of another shape. */
static void test_lstm_load(void **state)
{
    (void)state;
    static const char *const kinds[4] = {"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"};
    for (uint64_t n = 0; n < cases(8); n++) {
        struct memory *m = memory_create("recurrent lstm_load", n);
        struct named *named = named_create(m);
        const int biases = n % 2, directions = 1 + n / 2 % 2;
        enum { INPUT = 6, HIDDEN = 5, LAYERS = 2 };
        struct oracle_lstm_weights weights[4] = {{0}};
        const struct oracle_lstm oracle = {INPUT, HIDDEN, LAYERS, directions, weights};
        for (int part = 0; part < LAYERS * directions; part++)
            for (int kind = 0; kind < (biases ? 4 : 2); kind++) {
                char name[40];
                const int64_t below = part < directions ? INPUT : directions * HIDDEN;
                snprintf(name, sizeof name, "%s%d%s", kinds[kind], part / directions,
                         part % directions ? "_reverse" : "");
                named_add(named, m, random_dtype(m), kind < 2 ? 4 * HIDDEN : 0,
                          kind == 0   ? below
                          : kind == 1 ? HIDDEN
                                      : 4 * HIDDEN,
                          0.4, 0, "rnn.", name);
                const double *values = named_values(named, "rnn.", name);
                *(kind == 0   ? &weights[part].w_ih
                  : kind == 1 ? &weights[part].w_hh
                  : kind == 2 ? &weights[part].b_ih
                              : &weights[part].b_hh) = values;
            }
        attn_lstm_config c = attn_lstm_config_default();
        c.input = INPUT, c.hidden = HIDDEN, c.layers = LAYERS, c.bidirectional = directions - 1;
        attn_weights *w = named_weights(named);
        attn_lstm *lstm;
        OK(attn_lstm_load(&lstm, &c, w, "rnn."));
        attn_weights_destroy(w);
        const attn_tensor x = random_rows(m, 2, 7, INPUT), out = place_rows(m, 2, 7, directions * HIDDEN);
        OK(attn_lstm_forward(lstm, &x, NULL, NULL, &out, 0, NULL, 0));
        const struct trio y = trio(m, 2 * 7 * directions * HIDDEN);
        const double *xs = read_all(m, &x);
        for (int k = 0; k < ORACLES; k++)
            oracle_take(k)->lstm(&oracle, 2, 7, xs, NULL, zeros(m, 40), zeros(m, 40), y.of[k]);
        judge(NN_RECURRENT, "out", &out, y.of, NULL);
        attn_lstm_destroy(lstm);
        for (int64_t i = 0; i < named->num; i++)
            for (int change = 0; change < 2; change++) { /* one bias of several missing is an error, too */
                struct named *copy = bytes(m, sizeof *copy);
                memcpy(copy, named, sizeof *copy);
                if (change == 0)
                    named_remove(copy, named->names[i], "");
                else
                    copy->tensors[i].shape[3]--;
                w = named_weights(copy);
                REFUSES(NULL, attn_lstm_load(&lstm, &c, w, "rnn."),
                        change ? ATTN_SHAPE_MISMATCH : ATTN_INVALID_ARGUMENT, named->names[i]);
                assert_null(lstm);
                attn_weights_destroy(w);
            }
        named_add(named, m, ATTN_F32, 3, HIDDEN, 1, 0, "rnn.", "weight_hr_l0");
        w = named_weights(named);
        REFUSES(NULL, attn_lstm_load(NULL, &c, w, "rnn."), ATTN_INVALID_ARGUMENT,
                "lstm is NULL; expected where to put the LSTM");
        REFUSES(NULL, attn_lstm_load(&lstm, &c, w, "rnn."), ATTN_UNSUPPORTED,
                "weights has rnn.weight_hr_l0; an LSTM with proj_size is not supported");
        attn_weights_destroy(w);
        memory_destroy(m);
    }
    nn_end_refusals();
}

/* ---------------------------------------------------------------- Bahdanau -- */

struct step {
    attn_alignment_config alignment_config;
    attn_bahdanau_config config;
    struct oracle_alignment alignment_oracle;
    struct oracle_gru gru;
    attn_alignment *alignment;
    attn_bahdanau *step;
};

static void step_create(struct step *s, struct memory *m)
{
    struct rng *rng = &m->rng;
    const int64_t embedding = RNG_PICK(rng, 1, 5, 8, 17), annotation = RNG_PICK(rng, 1, 6, 16, 33);
    const int64_t hidden = RNG_PICK(rng, 1, 7, 8, 16, 25), attention = RNG_PICK(rng, 1, 8, 9, 24);
    attn_alignment_config *a = &s->alignment_config;
    memset(s, 0, sizeof *s);
    *a = attn_alignment_config_default();
    a->score = ATTN_SCORE_ADDITIVE, a->d_query = hidden, a->d_key = annotation, a->d_attention = attention;
    a->w_q = random_matrix(m, random_dtype(m), attention, hidden, 1 / sqrt((double)hidden));
    a->w_k = random_matrix(m, random_dtype(m), attention, annotation, 1 / sqrt((double)annotation));
    a->bias = random_vector(m, ATTN_F32, attention, 0.5, 0);
    a->v = random_vector(m, ATTN_F32, attention, 1, 0);
    s->alignment_oracle = (struct oracle_alignment){ATTN_SCORE_ADDITIVE,
                                                    hidden,
                                                    annotation,
                                                    attention,
                                                    0,
                                                    read_all(m, &a->w_q),
                                                    read_all(m, &a->w_k),
                                                    read_all(m, &a->bias),
                                                    read_all(m, &a->v)};
    OK(attn_alignment_create(&s->alignment, a));
    attn_bahdanau_config *c = &s->config;
    c->struct_size = sizeof *c;
    c->alignment = s->alignment;
    c->embedding = embedding, c->annotation = annotation, c->hidden = hidden;
    const int64_t input = embedding + annotation;
    c->w_ih = random_matrix(m, random_dtype(m), 3 * hidden, input, 1 / sqrt((double)input));
    c->w_hh = random_matrix(m, random_dtype(m), 3 * hidden, hidden, 1 / sqrt((double)hidden));
    s->gru = (struct oracle_gru){input, hidden, read_all(m, &c->w_ih), read_all(m, &c->w_hh), NULL, NULL};
    if (rng_percent(rng, 70)) {
        c->b_ih = random_vector(m, random_dtype(m), 3 * hidden, 0.5, 0);
        s->gru.b_ih = read_all(m, &c->b_ih);
    }
    if (rng_percent(rng, 70)) {
        c->b_hh = random_vector(m, random_dtype(m), 3 * hidden, 0.5, 0);
        s->gru.b_hh = read_all(m, &c->b_hh);
    }
    OK(attn_bahdanau_create(&s->step, c));
}

static void test_bahdanau(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(120); n++) {
        struct memory *m = memory_create("recurrent bahdanau", n);
        const int64_t batch = RNG_PICK(&m->rng, 0, 1, 3, 7), tokens = RNG_PICK(&m->rng, 0, 1, 4, 17, 60);
        struct step s;
        step_create(&s, m);
        const attn_bahdanau_config *c = &s.config;
        const attn_tensor word = random_rows(m, batch, 1, c->embedding);
        const attn_tensor annotations = random_rows(m, batch, tokens, c->annotation);
        const attn_tensor projected = place_rows(m, batch, tokens, s.alignment_oracle.d_attention);
        const attn_tensor its_state = place_rows(m, batch, 1, c->hidden),
                          context = place_rows(m, batch, 1, c->annotation);
        const attn_tensor weights = place_rows(m, batch, 1, tokens);
        const int64_t *lengths = random_lengths(m, batch, tokens);
        for (int64_t b = 0; b < batch && lengths; b++)
            for (int64_t t = lengths[b]; t < tokens; t++)
                for (int64_t i = 0; i < c->annotation; i++)
                    tensor_set(&annotations, b, 0, t, i, i % 2 ? NAN : INFINITY);
        fill(m, &its_state, 0.5);
        mark_output(m, &its_state);
        struct trio st = trio(m, batch * c->hidden);
        const struct trio co = trio(m, batch * c->annotation), we = trio(m, batch * tokens);
        const double *words = read_all(m, &word), *an = read_all(m, &annotations);
        for (int k = 0; k < ORACLES; k++) {
            memcpy(st.of[k], read_all(m, &its_state), (size_t)(batch * c->hidden) * sizeof(double));
            oracle_take(k)->bahdanau(&s.alignment_oracle, &s.gru, batch, tokens, c->annotation, words, an, lengths,
                                     st.of[k], co.of[k], we.of[k]);
        }
        memory_seal(m);
        OK(attn_alignment_project(s.alignment, &annotations, &projected, 0));
        const int has_context = rng_percent(&m->rng, 60), has_weights = rng_percent(&m->rng, 60);
        const size_t size = attn_bahdanau_workspace_size(s.step, batch, tokens);
        void *workspace = n % 2 ? place_workspace(m, size) : NULL;
        OK(attn_bahdanau_forward(s.step, &word, &projected, &annotations, lengths, &its_state,
                                 has_context ? &context : NULL, has_weights ? &weights : NULL, (int)(n % 4), workspace,
                                 workspace ? size : 0));
        double size_of_score = 0; /* of terms v tanh(...), as if they were independent */
        for (int64_t i = 0; i < s.alignment_oracle.d_attention; i++)
            size_of_score += s.alignment_oracle.v[i] * s.alignment_oracle.v[i];
        size_of_score = sqrt(size_of_score);
        judge(NN_RECURRENT, "state", &its_state, st.of,
              softmax_sizes(m, st.of[0], batch, c->hidden, 0.3, &size_of_score, batch));
        if (has_context)
            judge(NN_ALIGNMENT, "context", &context, co.of,
                  softmax_sizes(m, co.of[0], batch, c->annotation, 0.3, &size_of_score, batch));
        if (has_weights)
            judge(NN_WEIGHTS, "weights", &weights, we.of,
                  softmax_sizes(m, we.of[0], batch * tokens, 1, 0.05, &size_of_score, batch * tokens));
        attn_bahdanau_destroy(s.step);
        attn_alignment_destroy(s.alignment);
        memory_destroy(m);
    }
    attn_bahdanau_destroy(NULL);
}

/** One sequence by itself has the bits that it has in a batch, with any number of threads. */
static void test_bahdanau_bits(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(20); n++) {
        struct memory *m = memory_create("recurrent bahdanau_bits", n);
        const int64_t batch = 7, tokens = 40;
        struct step s;
        step_create(&s, m);
        const attn_tensor word = random_rows(m, batch, 1, s.config.embedding);
        const attn_tensor annotations = random_rows(m, batch, tokens, s.config.annotation);
        const attn_tensor projected = random_rows(m, batch, tokens, s.alignment_oracle.d_attention);
        const attn_tensor before = random_rows(m, batch, 1, s.config.hidden);
        const attn_tensor all = place_dense(m, batch, 1, 1, s.config.hidden);
        for (int64_t b = 0; b < batch; b++)
            for (int64_t c = 0; c < s.config.hidden; c++)
                tensor_set(&all, b, 0, 0, c, tensor_get(&before, b, 0, 0, c));
        OK(attn_bahdanau_forward(s.step, &word, &projected, &annotations, NULL, &all, NULL, NULL, 1, NULL, 0));
        for (int64_t b = 0; b < batch; b++) {
            const attn_tensor one = slice(&before, b, 0, 1), w = slice(&word, b, 0, 1),
                              a = slice(&annotations, b, 0, tokens);
            const attn_tensor p = slice(&projected, b, 0, tokens), expected = slice(&all, b, 0, 1);
            OK(attn_bahdanau_forward(s.step, &w, &p, &a, NULL, &one, NULL, NULL, (int)(b % 4), NULL, 0));
            assert_true(equal_bits(&one, &expected));
        }
        attn_bahdanau_destroy(s.step);
        attn_alignment_destroy(s.alignment);
        memory_destroy(m);
    }
}

static void test_bahdanau_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("recurrent bahdanau_refuses", 0);
    attn_alignment_config ac = attn_alignment_config_default();
    ac.score = ATTN_SCORE_ADDITIVE, ac.d_query = 4, ac.d_key = 5, ac.d_attention = 3;
    ac.w_q = place_dense(m, 1, 1, 3, 4), ac.w_k = place_dense(m, 1, 1, 3, 5), ac.v = place_dense(m, 1, 1, 1, 3);
    attn_bahdanau_config config = {.struct_size = sizeof config, .embedding = 6, .annotation = 5, .hidden = 4};
    config.w_ih = place_dense(m, 1, 1, 12, 11), config.w_hh = place_dense(m, 1, 1, 12, 4);
    config.b_ih = place_dense(m, 1, 1, 1, 12), config.b_hh = place_dense(m, 1, 1, 1, 12);
    const attn_tensor word = place_dense(m, 2, 1, 1, 6), projected = place_dense(m, 2, 1, 7, 3);
    const attn_tensor annotations = place_dense(m, 2, 1, 7, 5), s = place_dense(m, 2, 1, 1, 4);
    const attn_tensor context = place_dense(m, 2, 1, 1, 5), weights = place_dense(m, 2, 1, 1, 7);
    for (int i = 0; i < m->num_buffers; i++)
        fill(m, &m->buffers[i].tensor, 0.3);
    attn_alignment *alignment, *dot;
    OK(attn_alignment_create(&alignment, &ac));
    attn_alignment_config dc = attn_alignment_config_default();
    dc.d_query = dc.d_key = 4;
    OK(attn_alignment_create(&dot, &dc));
    config.alignment = alignment;
    attn_bahdanau *step = (attn_bahdanau *)m;
    memory_seal(m);
#define STEP_REFUSES(assignment, status, words)                                                                        \
    do {                                                                                                               \
        attn_bahdanau_config c = config;                                                                               \
        c.assignment;                                                                                                  \
        step = (attn_bahdanau *)m;                                                                                     \
        REFUSES(m, attn_bahdanau_create(&step, &c), status, words);                                                    \
        assert_null(step);                                                                                             \
    } while (0)
    REFUSES(m, attn_bahdanau_create(NULL, &config), ATTN_INVALID_ARGUMENT,
            "step is NULL; expected where to put the step");
    REFUSES(m, attn_bahdanau_create(&step, NULL), ATTN_INVALID_ARGUMENT, "config|NULL");
    STEP_REFUSES(struct_size = 0, ATTN_INVALID_ARGUMENT, "struct_size|0");
    STEP_REFUSES(alignment = NULL, ATTN_INVALID_ARGUMENT,
                 "config.alignment is NULL; expected an additive score function");
    STEP_REFUSES(alignment = dot, ANY_ERROR, "config.alignment has the score 0; expected ATTN_SCORE_ADDITIVE");
    STEP_REFUSES(hidden = 5, ANY_ERROR, "config.alignment has queries of 4 channels; expected 5, config.hidden");
    STEP_REFUSES(annotation = 6, ANY_ERROR, "config.alignment has keys of 5 channels; expected 6, config.annotation");
    STEP_REFUSES(embedding = -6, ATTN_INVALID_ARGUMENT, "embedding|-6");
    STEP_REFUSES(w_ih.shape[3] = 10, ATTN_SHAPE_MISMATCH, "w_ih|10|11");
    STEP_REFUSES(w_hh.shape[2] = 16, ATTN_SHAPE_MISMATCH, "w_hh|16|12");
    STEP_REFUSES(w_hh.data = NULL, ATTN_INVALID_ARGUMENT, "w_hh|NULL");
    STEP_REFUSES(b_ih.shape[3] = 4, ATTN_SHAPE_MISMATCH, "b_ih|4|12");
    STEP_REFUSES(b_hh.dtype = ATTN_I8, ATTN_UNSUPPORTED, "b_hh|i8");
    OK(attn_bahdanau_create(&step, &config));
#define RUN(ww, pp, aa, lengths, ss, cc, we) attn_bahdanau_forward(step, ww, pp, aa, lengths, ss, cc, we, 0, NULL, 0)
#define T(tensor, assignment)                CHANGED(attn_tensor, tensor, assignment)
    const int64_t lengths[2] = {7, 8};
    const attn_tensor *const w = &word, *const p = &projected, *const a = &annotations, *const st = &s;
    const attn_tensor *const c = &context, *const we = &weights;
    REFUSES(m, attn_bahdanau_forward(NULL, w, p, a, NULL, st, c, we, 0, NULL, 0), ATTN_INVALID_ARGUMENT,
            "step is NULL; expected a step");
    REFUSES(m, RUN(NULL, p, a, NULL, st, c, we), ATTN_INVALID_ARGUMENT, "word|NULL");
    REFUSES(m, RUN(w, NULL, a, NULL, st, c, we), ATTN_INVALID_ARGUMENT, "projected|NULL");
    REFUSES(m, RUN(w, p, NULL, NULL, st, c, we), ATTN_INVALID_ARGUMENT, "annotations|NULL");
    REFUSES(m, RUN(w, p, a, NULL, NULL, c, we), ATTN_INVALID_ARGUMENT, "state|NULL");
    REFUSES(m, RUN(w, p, a, lengths, st, c, we), ATTN_INVALID_ARGUMENT, "lengths[1]|8|7");
    REFUSES(m, RUN(T(word, shape[3] = 5), p, a, NULL, st, c, we), ATTN_SHAPE_MISMATCH, "word|5|6");
    REFUSES(m, RUN(T(word, shape[2] = 2), p, a, NULL, st, c, we), ATTN_SHAPE_MISMATCH, "word|2|1");
    REFUSES(m, RUN(w, T(projected, shape[3] = 4), a, NULL, st, c, we), ATTN_SHAPE_MISMATCH, "projected|4|3");
    REFUSES(m, RUN(w, p, T(annotations, shape[2] = 6), NULL, st, c, we), ATTN_SHAPE_MISMATCH, "annotations|6|7");
    REFUSES(m, RUN(w, p, T(annotations, dtype = ATTN_F16), NULL, st, c, we), ATTN_UNSUPPORTED, "annotations|f16");
    REFUSES(m, RUN(w, p, a, NULL, T(s, shape[3] = 5), c, we), ATTN_SHAPE_MISMATCH, "state|5|4");
    REFUSES(m, RUN(w, p, a, NULL, T(s, shape[0] = 3), c, we), ATTN_SHAPE_MISMATCH, "state|3|2");
    REFUSES(m, RUN(w, p, a, NULL, st, T(context, shape[3] = 4), we), ATTN_SHAPE_MISMATCH, "context|4|5");
    REFUSES(m, RUN(w, p, a, NULL, st, c, T(weights, shape[3] = 6)), ATTN_SHAPE_MISMATCH, "weights|6|7");
    REFUSES(m, RUN(w, p, a, NULL, T(s, stride[0] = 0), c, we), ATTN_INVALID_ARGUMENT, "state|0");
    REFUSES(m, RUN(w, p, a, NULL, T(s, data = annotations.data), c, we), ATTN_INVALID_ARGUMENT, "state|annotations");
    REFUSES(m, attn_bahdanau_forward(step, w, p, a, NULL, st, c, we, -1, NULL, 0), ATTN_INVALID_ARGUMENT,
            "num_threads|-1");
    const size_t size = attn_bahdanau_workspace_size(step, 2, 7);
    if (size > 0)
        REFUSES(m, attn_bahdanau_forward(step, w, p, a, NULL, st, c, we, 0, bytes(m, size), size - 1),
                ATTN_WORKSPACE_TOO_SMALL, "workspace");
    nn_end_refusals();
    attn_bahdanau_destroy(step);
    attn_alignment_destroy(alignment);
    attn_alignment_destroy(dot);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lstm),          cmocka_unit_test(test_lstm_bits),
                                       cmocka_unit_test(test_lstm_nan),      cmocka_unit_test(test_lstm_refuses),
                                       cmocka_unit_test(test_lstm_load),     cmocka_unit_test(test_bahdanau),
                                       cmocka_unit_test(test_bahdanau_bits), cmocka_unit_test(test_bahdanau_refuses)};
    return NN_MAIN(tests);
}
