/* Attention over token trees, forward and backward, in float32.

A row of a chain sees the chain's ancestors and, of the chain itself, what comes before it and itself: its path. So its
keys are a few stretches of places, and no mask is made. A block of rows is multiplied with all its keys at once, and
its scores stay in the processor's cache.

Invariant: the same numbers whatever the number of parts, except that gradients of keys and values are one sum a part
where heads are too few for all parts.

Legend: T tokens, H heads, G key heads, R heads per key head, D width of a head, E that width in whole vectors, n rows of
a block (a token has R of them), K keys of a block. Scores are powers of two.
*/

#include "scores.h"

/* -- trees -------------------------------------------------------------------------------------------------------- */

enum { AT_ONCE = 1024, SHORT = 2048 };
/* Keys of a block whose gradients are computed at once, so that they stay in the processor's cache; keys of a path up to
which twice the rows do. */

typedef struct {
    count T, H, G, D;
    float scale;
    count window;      /* keys that a row sees at most */
    count chains, top; /* chains, and keys of the longest path */
    const int *first;  /* of each chain's rows; their number at last */
    const int *rows;   /* the place of each row, chain by chain */
    const int *begin;  /* of each chain's stretches; their number at last */
    const int *spans;  /* stretches of places, by depth: the first, and the one after the last */
    count part, parts; /* every parts-th key head is computed, from part on; every such block, where heads are too few */
} Trees;

typedef struct {
    const float *at;
    count t, h;
} Heads; /* [T, heads, D], by the steps from token to token and from head to head */

INLINE const float *row_of(Heads x, count place, count head) { return x.at + place * x.t + head * x.h; }
INLINE count per_key(const Trees *z) { return z->H / z->G; }
INLINE int by_heads(const Trees *z) { return z->G % z->parts == 0; }
INLINE count block_tokens(const Trees *z) { return most(1, (z->top > SHORT ? 1 : 2) * ROWS / per_key(z)); }
INLINE count block_rows(const Trees *z) { return block_tokens(z) * per_key(z); }
INLINE count score_step(const Trees *z) { return z->top + 2 * WIDTH; }

/* Keys turned, [panels, D, 2 PANEL]: the second half of a panel is the first of the next, so that a tile that begins
anywhere lies in one panel, and close together. */
INLINE count columns_size(const Trees *z) { return (z->T / PANEL + 2) * z->D * 2 * PANEL; }
INLINE count column_of(const Trees *z, count place) { return place / PANEL * z->D * 2 * PANEL + place % PANEL; }

typedef struct {
    count chain, g, n;
    const int *places;    /* of its tokens */
    count seen, from, to; /* keys of its first token's path; keys that any of its tokens sees, by depth */
} Block;

typedef struct {
    count span, depth, place, column, length;
} Stretch; /* keys that lie side by side: their first place, and the column of its score */

INLINE Stretch before(const Trees *z, const Block *b) { return (Stretch){z->begin[b->chain] - 1, 0, 0, 0, 0}; }

/* Goes on to the next stretch of the block's keys; 0 where there is none. */
static int next(const Trees *z, const Block *b, Stretch *s) {
    for (; s->depth < b->to; ) {
        const int *span = z->spans + 2 * ++s->span;
        count depth = s->depth, low = most(depth, b->from), high = least(depth + span[1] - span[0], b->to);
        s->depth = depth + span[1] - span[0];
        if (low < high) {
            s->place = span[0] + low - depth, s->column = low - b->from, s->length = high - low;
            return 1;
        }
    }
    return 0;
}

typedef struct {
    count chain, token, number;
} Turn; /* where the next block begins, and how many came before */

/* Goes on to the next block of this part; 0 where there is none. */
static int next_block(const Trees *z, Turn *turn, count g, Block *b) {
    for (; turn->chain < z->chains; turn->chain++, turn->token = 0) {
        count c = turn->chain, length = z->first[c + 1] - z->first[c], above = -length;
        for (count s = z->begin[c]; s < z->begin[c + 1]; s++) above += z->spans[2 * s + 1] - z->spans[2 * s];
        while (turn->token < length) {
            count t0 = turn->token, t1 = least(t0 + block_tokens(z), length);
            turn->token = t1;
            if (by_heads(z) || turn->number++ % z->parts == z->part) {
                *b = (Block){c, g, (t1 - t0) * per_key(z), z->rows + z->first[c] + t0, above + t0 + 1, 0, above + t1};
                b->from = most(0, b->seen - z->window);
                return 1;
            }
        }
    }
    return 0;
}

INLINE count head_of(const Trees *z, const Block *b, count i) { return b->g * per_key(z) + i % per_key(z); }
INLINE count place_of(const Trees *z, const Block *b, count i) { return b->places[i / per_key(z)]; }

/* The columns that row i of a block sees: from low to before high, if there are any. */
INLINE count high_of(const Trees *z, const Block *b, count i) {
    return most(0, least(b->seen + i / per_key(z), b->to) - b->from);
}
INLINE count low_of(const Trees *z, const Block *b, count i) {
    return most(0, least(b->seen + i / per_key(z) - z->window, b->to) - b->from);
}

/* [T, E] of one head. */
static void laid_out(const Trees *z, Heads x, count head, float *rows) {
    count E = whole(z->D);
    for (count t = 0; t < z->T; t++) {
        memcpy(rows + t * E, row_of(x, t, head), z->D * sizeof(float));
        memset(rows + t * E + z->D, 0, (E - z->D) * sizeof(float));
    }
}

/* What was laid out, turned. */
static void turned(const Trees *z, const float *rows, float *columns) {
    count E = whole(z->D);
    float *last = columns + most(0, z->T / PANEL - 1) * z->D * 2 * PANEL; /* before it everything is written */
    memset(last, 0, (columns + columns_size(z) - last) * sizeof(float));
    for (count t0 = 0; t0 < z->T; t0 += WIDTH)
        for (count d = 0; d < z->D; d++) {
            float *to = columns + column_of(z, t0) + d * 2 * PANEL;
            for (count t = t0; t < least(t0 + WIDTH, z->T); t++) to[t - t0] = rows[t * E + d];
            if (t0 >= PANEL) memcpy(to - z->D * 2 * PANEL + PANEL, to, WIDTH * sizeof(float));
        }
}

/* [n, E]: the rows of a block. */
static void gathered(const Trees *z, const Block *b, Heads x, float *to) {
    count E = whole(z->D);
    for (count i = 0; i < b->n; i++) {
        memcpy(to + i * E, row_of(x, place_of(z, b, i), head_of(z, b, i)), z->D * sizeof(float));
        memset(to + i * E + z->D, 0, (E - z->D) * sizeof(float));
    }
}

/* [n, K] = block [n, E] times what is turned in columns, at the block's keys. */
static void against(const Trees *z, const Block *b, const float *block, const float *columns, float *scores) {
    for (Stretch s = before(z, b); next(z, b, &s); )
        for (count k = 0; k < s.length; k += PANEL)
            product(0, b->n, least(PANEL, s.length - k), z->D, block, whole(z->D), 1,
                    columns + column_of(z, s.place + k), 2 * PANEL, scores + s.column + k, score_step(z));
}

/* [n, E] += weights [n, K] times rows [T, E] at the block's keys. */
static void weighed(const Trees *z, const Block *b, const float *weights, const float *rows, float *to) {
    count E = whole(z->D);
    for (Stretch s = before(z, b); next(z, b, &s); )
        for (count k = 0; k < s.length; k += DEEP)
            product(1, b->n, E, least(DEEP, s.length - k), weights + s.column + k, score_step(z), 1,
                    rows + (s.place + k) * E, E, to, E);
}

/* rows [T, E] at the block's keys += weights [n, K] turned, times block [n, E]. */
static void spread(const Trees *z, const Block *b, const float *weights, const float *block, float *rows) {
    count E = whole(z->D);
    for (Stretch s = before(z, b); next(z, b, &s); )
        product(1, s.length, E, b->n, weights + s.column, 1, score_step(z), block, E, rows + s.place * E, E);
}

/* -- what is called ----------------------------------------------------------------------------------------------- */

/* Numbers that a call needs to write to. */
count turnwise_scratch(const Trees *z) {
    return 2 * columns_size(z) + 4 * z->T * whole(z->D) + 2 * block_rows(z) * score_step(z) +
           3 * block_rows(z) * whole(z->D);
}

/* out [T, H, D]; norm [T, H] is the logarithm, base 2, of the sum that the weights of a row were divided by. */
void turnwise_forward(const Trees *z, const Heads *query, const Heads *key, const Heads *value, float *scratch, float *out,
                      float *norm) {
    count E = whole(z->D);
    float *columns = scratch, *keys = columns + columns_size(z), *values = keys + z->T * E,
          *block = values + z->T * E, *result = block + block_rows(z) * E, *scores = result + block_rows(z) * E;
    for (count g = by_heads(z) ? z->part : 0; g < z->G; g += by_heads(z) ? z->parts : 1) {
        laid_out(z, *value, g, values);
        laid_out(z, *key, g, keys);
        turned(z, keys, columns);
        Turn turn = {0, 0, 0};
        for (Block b; next_block(z, &turn, g, &b); ) {
            gathered(z, &b, *query, block);
            against(z, &b, block, columns, scores);
            float sums[b.n];
            for (count i = 0; i < b.n; i++)
                sums[i] = softened(scores + i * score_step(z), low_of(z, &b, i), high_of(z, &b, i), b.to - b.from,
                                   z->scale * LOG2_E, norm + place_of(z, &b, i) * z->H + head_of(z, &b, i));
            memset(result, 0, b.n * E * sizeof(float));
            weighed(z, &b, scores, values, result);
            for (count i = 0; i < b.n; i++) {
                float *to = out + (place_of(z, &b, i) * z->H + head_of(z, &b, i)) * z->D, share = 1 / sums[i];
                for (count d = 0; d < z->D; d++) to[d] = result[i * E + d] * share;
            }
        }
    }
}

/* Gradients by query [T, H, D], and this part's by key and value [T, G, D]. */
void turnwise_backward(const Trees *z, const Heads *query, const Heads *key, const Heads *value, float *scratch,
                       const float *out, const float *norm, const Heads *grad, float *by_query, float *by_key,
                       float *by_value) {
    count E = whole(z->D), n = block_rows(z);
    float *key_columns = scratch, *value_columns = key_columns + columns_size(z),
          *keys = value_columns + columns_size(z), *values = keys + z->T * E, *key_sums = values + z->T * E,
          *value_sums = key_sums + z->T * E, *block = value_sums + z->T * E, *outer = block + n * E,
          *result = outer + n * E, *weights = result + n * E, *slopes = weights + n * score_step(z);
    for (count g = by_heads(z) ? z->part : 0; g < z->G; g += by_heads(z) ? z->parts : 1) {
        laid_out(z, *value, g, values);
        laid_out(z, *key, g, keys);
        turned(z, values, value_columns);
        turned(z, keys, key_columns);
        memset(key_sums, 0, 2 * z->T * E * sizeof(float));
        Turn turn = {0, 0, 0};
        for (Block b; next_block(z, &turn, g, &b); ) {
            gathered(z, &b, *query, block);
            gathered(z, &b, *grad, outer);
            float along[b.n];
            for (count i = 0; i < b.n; i++) {
                const float *read = out + (place_of(z, &b, i) * z->H + head_of(z, &b, i)) * z->D;
                along[i] = dot(read, outer + i * E, z->D);
            }
            memset(result, 0, b.n * E * sizeof(float));
            for (Block some = b; some.from < b.to; some.from = some.to) {
                some.to = least(some.from + AT_ONCE, b.to);
                against(z, &some, block, key_columns, weights);
                against(z, &some, outer, value_columns, slopes);
                for (count i = 0; i < b.n; i++) {
                    float *weight = weights + i * score_step(z), *slope = slopes + i * score_step(z);
                    float power_i = norm[place_of(z, &b, i) * z->H + head_of(z, &b, i)];
                    count low = low_of(z, &some, i), high = high_of(z, &some, i), end = some.to - some.from;
                    for (count j = 0; j < end; j += WIDTH) {
                        vec x = power(load(weight + j) * (z->scale * LOG2_E) - power_i);
                        store(weight + j, x);
                        store(slope + j, x * (load(slope + j) - along[i]) * z->scale);
                    }
                    for (count j = 0; j < low; j++) weight[j] = slope[j] = 0;
                    for (count j = high; j < end; j++) weight[j] = slope[j] = 0;
                }
                spread(z, &some, weights, outer, value_sums);
                spread(z, &some, slopes, block, key_sums);
                weighed(z, &some, slopes, keys, result);
            }
            for (count i = 0; i < b.n; i++)
                memcpy(by_query + (place_of(z, &b, i) * z->H + head_of(z, &b, i)) * z->D, result + i * E,
                       z->D * sizeof(float));
        }
        for (count t = 0; t < z->T; t++) {
            memcpy(by_key + (t * z->G + g) * z->D, key_sums + t * E, z->D * sizeof(float));
            memcpy(by_value + (t * z->G + g) * z->D, value_sums + t * E, z->D * sizeof(float));
        }
    }
}
