/* Attention over token trees, forward and backward, in float32.

A row of a chain sees the chain's ancestors and, of the chain itself, what comes before it and itself: its path. So its
keys are a few stretches of places, and no mask is made. A block of rows is multiplied with all its keys at once, and
its scores stay in the processor's cache. Written for no processor: the compiler makes vectors of whatever width there is.

Invariant: the same numbers whatever the number of parts, except that gradients of keys and values are one sum a part.

Legend: T tokens, H heads, G key heads, R heads per key head, D width of a head, E that width in whole vectors, n rows of
a block (a token has R of them), K keys of a block. Scores are powers of two.
*/

#include <math.h>
#include <stddef.h>
#include <string.h>

#if defined(__AVX512F__)
enum { WIDTH = 16, DOWN = 6, ACROSS = 4 };
#elif defined(__AVX__)
enum { WIDTH = 8, DOWN = 6, ACROSS = 2 };
#else
enum { WIDTH = 4, DOWN = 6, ACROSS = 4 };
#endif
/* Numbers of a vector; rows and vectors of a tile, whose sums have to fit the registers. */

enum { ROWS = 24, DEEP = 128 };
/* Rows of a block, where a token has no more; keys of a product's inner side that are taken at once. */

#define INLINE static inline __attribute__((always_inline))

typedef ptrdiff_t count;
typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef unsigned bits __attribute__((vector_size(4 * WIDTH)));
typedef float loose __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

INLINE vec load(const float *from) { return *(const loose *)from; }
INLINE void store(float *to, vec x) { *(loose *)to = x; }
INLINE vec all(float x) { return x - (vec){0}; }
INLINE vec larger(vec a, vec b) {
    bits which = (bits)(a > b);
    return (vec)(((bits)a & which) | ((bits)b & ~which));
}
INLINE count least(count a, count b) { return a < b ? a : b; }
INLINE count most(count a, count b) { return a > b ? a : b; }
INLINE count whole(count n) { return (n + WIDTH - 1) / WIDTH * WIDTH; }

/* 2 to the power of x, for x not above 0 by more than rounding; exactly 0 where it would be no normal number. */
INLINE vec power(vec x) {
    const vec round = all(12582912.0f); /* 1.5 * 2^23: what is added to it loses its fraction */
    vec integer = x + round, f = x - (integer - round);
    vec y = all(1.52527338e-5f); /* (ln 2)^k / k!, from k = 7 */
    y = y * f + 1.54035304e-4f;
    y = y * f + 1.33335581e-3f;
    y = y * f + 9.61812911e-3f;
    y = y * f + 5.55041087e-2f;
    y = y * f + 2.40226507e-1f;
    y = y * f + 6.93147181e-1f;
    y = y * f + 1.0f;
    return (vec)(((bits)y + ((bits)integer << 23)) & (bits)(x > all(-126.0f)));
}

/* -- products ----------------------------------------------------------------------------------------------------- */

/* C[i, j] (+)= sum over p of A[i, p] B[p, j], where C has M rows and N vectors. */
INLINE void tile(const int M, const int N, const int add, count inner, const float *a, count a_i, count a_p,
                 const float *b, count b_p, float *c, count c_i) {
    vec sum[DOWN][ACROSS];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) sum[i][j] = add ? load(c + i * c_i + j * WIDTH) : all(0);
    for (count p = 0; p < inner; p++, a += a_p, b += b_p) {
        vec row[ACROSS];
        for (int j = 0; j < N; j++) row[j] = load(b + j * WIDTH);
        for (int i = 0; i < M; i++) {
            vec x = all(a[i * a_i]);
            for (int j = 0; j < N; j++) sum[i][j] += x * row[j];
        }
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) store(c + i * c_i + j * WIDTH, sum[i][j]);
}

#define TILE(M, N) \
    case M * 8 + N: tile(M, N, add, inner, a, a_i, a_p, b, b_p, c, c_i); break;
#if defined(__AVX__) && !defined(__AVX512F__)
#define TILES(M) TILE(M, 1) TILE(M, 2)
#else
#define TILES(M) TILE(M, 1) TILE(M, 2) TILE(M, 3) TILE(M, 4)
#endif

/* Sizes that the compiler knows keep the sums of a tile in registers. */
#define TILED(NAME, ADD)                                                                                               \
    static void NAME(count m, count n, count inner, const float *a, count a_i, count a_p, const float *b, count b_p,   \
                     float *c, count c_i) {                                                                            \
        const int add = ADD;                                                                                           \
        switch (m * 8 + n) { TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6) }                                   \
    }
TILED(set, 0)
TILED(added, 1)

/* C (+)= A B with n columns, rounded up to whole vectors: what is beyond them is overwritten with anything. */
static void product(int add, count m, count n, count inner, const float *a, count a_i, count a_p, const float *b,
                    count b_p, float *c, count c_i) {
    count vectors = whole(n) / WIDTH;
    for (count j = 0; j < vectors; j += ACROSS)
        for (count i = 0; i < m; i += DOWN)
            (add ? added : set)(least(DOWN, m - i), least(ACROSS, vectors - j), inner, a + i * a_i, a_i, a_p,
                                b + j * WIDTH, b_p, c + i * c_i + j * WIDTH, c_i);
}

/* -- trees -------------------------------------------------------------------------------------------------------- */

typedef struct {
    count T, H, G, D;
    float scale;
    count window;      /* keys that a row sees at most */
    count chains, top; /* chains, and keys of the longest path */
    const int *first;  /* of each chain's rows; their number at last */
    const int *rows;   /* the place of each row, chain by chain */
    const int *begin;  /* of each chain's stretches; their number at last */
    const int *spans;  /* stretches of places, by depth: the first, and the one after the last */
    count part, parts; /* every parts-th block is computed, from part on */
} Trees;

typedef struct {
    const float *at;
    count t, h;
} Heads; /* [T, heads, D], by the steps from token to token and from head to head */

INLINE const float *row_of(Heads x, count place, count head) { return x.at + place * x.t + head * x.h; }
INLINE count per_key(const Trees *z) { return z->H / z->G; }
INLINE count block_tokens(const Trees *z) { return most(1, ROWS / per_key(z)); }
INLINE count block_rows(const Trees *z) { return block_tokens(z) * per_key(z); }
INLINE count score_step(const Trees *z) { return z->top + 2 * WIDTH; }
INLINE count column_step(const Trees *z) { return z->T + 2 * WIDTH; }

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
            if (turn->number++ % z->parts == z->part) {
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

/* The columns that row i of a block sees: from low to before high. */
INLINE count high_of(const Trees *z, const Block *b, count i) { return b->seen + i / per_key(z) - b->from; }
INLINE count low_of(const Trees *z, const Block *b, count i) { return most(0, high_of(z, b, i) - z->window); }

/* [T, E] of one head, and [D, T] in steps of ``column_step`` where ``columns`` is given. */
static void laid_out(const Trees *z, Heads x, count head, float *rows, float *columns) {
    count E = whole(z->D), step = column_step(z);
    for (count t = 0; t < z->T; t++) {
        memcpy(rows + t * E, row_of(x, t, head), z->D * sizeof(float));
        memset(rows + t * E + z->D, 0, (E - z->D) * sizeof(float));
    }
    for (count t0 = 0; t0 < z->T; t0 += WIDTH)
        for (count d = 0; d < z->D; d++)
            for (count t = t0; t < least(t0 + WIDTH, z->T); t++) columns[d * step + t] = rows[t * E + d];
    for (count d = 0; d < z->D; d++) memset(columns + d * step + z->T, 0, (step - z->T) * sizeof(float));
}

/* [n, E]: the rows of a block. */
static void gathered(const Trees *z, const Block *b, Heads x, float *to) {
    count E = whole(z->D);
    for (count i = 0; i < b->n; i++) {
        memcpy(to + i * E, row_of(x, place_of(z, b, i), head_of(z, b, i)), z->D * sizeof(float));
        memset(to + i * E + z->D, 0, (E - z->D) * sizeof(float));
    }
}

/* [n, K] = block [n, E] times columns [D, T] at the block's keys. */
static void against(const Trees *z, const Block *b, const float *block, const float *columns, float *scores) {
    for (Stretch s = before(z, b); next(z, b, &s); )
        product(0, b->n, s.length, z->D, block, whole(z->D), 1, columns + s.place, column_step(z), scores + s.column,
                score_step(z));
}

/* [n, E] = weights [n, K] times rows [T, E] at the block's keys. */
static void weighed(const Trees *z, const Block *b, const float *weights, const float *rows, float *to) {
    count E = whole(z->D);
    memset(to, 0, b->n * E * sizeof(float));
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

/* Scores become 2 to their power, in parts of the whole that is returned; *norm is the power of 2 of that whole. */
static float softened(float *score, count low, count high, count end, float scale, float *norm) {
    for (count j = 0; j < low; j++) score[j] = -INFINITY;
    for (count j = high; j < whole(end); j++) score[j] = -INFINITY;
    vec tops = all(-INFINITY), sums = all(0);
    for (count j = 0; j < end; j += WIDTH) tops = larger(load(score + j), tops);
    float top = tops[0], sum = 0;
    for (int j = 1; j < WIDTH; j++) top = tops[j] > top ? tops[j] : top;
    for (count j = 0; j < end; j += WIDTH) {
        vec x = power((load(score + j) - top) * scale);
        sums += x;
        store(score + j, x);
    }
    for (int j = 0; j < WIDTH; j++) sum += sums[j];
    *norm = top * scale + log2f(sum);
    return sum;
}

/* -- what is called ----------------------------------------------------------------------------------------------- */

static const float LOG2_E = 1.44269504f;

/* Numbers that a call needs to write to. */
count turnwise_scratch(const Trees *z) {
    return 2 * z->D * column_step(z) + 4 * z->T * whole(z->D) + 2 * block_rows(z) * score_step(z) +
           3 * block_rows(z) * whole(z->D);
}

/* out [T, H, D]; norm [T, H] is the logarithm, base 2, of the sum that the weights of a row were divided by. */
void turnwise_forward(const Trees *z, const Heads *query, const Heads *key, const Heads *value, float *scratch, float *out,
                      float *norm) {
    count E = whole(z->D);
    float *columns = scratch, *keys = columns + z->D * column_step(z), *values = keys + z->T * E,
          *block = values + z->T * E, *result = block + block_rows(z) * E, *scores = result + block_rows(z) * E;
    for (count g = 0; g < z->G; g++) {
        laid_out(z, *value, g, values, columns);
        laid_out(z, *key, g, keys, columns);
        Turn turn = {0, 0, 0};
        for (Block b; next_block(z, &turn, g, &b); ) {
            gathered(z, &b, *query, block);
            against(z, &b, block, columns, scores);
            float sums[b.n];
            for (count i = 0; i < b.n; i++)
                sums[i] = softened(scores + i * score_step(z), low_of(z, &b, i), high_of(z, &b, i), b.to - b.from,
                                   z->scale * LOG2_E, norm + place_of(z, &b, i) * z->H + head_of(z, &b, i));
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
    float *key_columns = scratch, *value_columns = key_columns + z->D * column_step(z),
          *keys = value_columns + z->D * column_step(z), *values = keys + z->T * E, *key_sums = values + z->T * E,
          *value_sums = key_sums + z->T * E, *block = value_sums + z->T * E, *outer = block + n * E,
          *result = outer + n * E, *weights = result + n * E, *slopes = weights + n * score_step(z);
    for (count g = 0; g < z->G; g++) {
        laid_out(z, *value, g, values, value_columns);
        laid_out(z, *key, g, keys, key_columns);
        memset(key_sums, 0, 2 * z->T * E * sizeof(float));
        Turn turn = {0, 0, 0};
        for (Block b; next_block(z, &turn, g, &b); ) {
            gathered(z, &b, *query, block);
            gathered(z, &b, *grad, outer);
            against(z, &b, block, key_columns, weights);
            against(z, &b, outer, value_columns, slopes);
            for (count i = 0; i < b.n; i++) {
                count at = place_of(z, &b, i) * z->H + head_of(z, &b, i), end = b.to - b.from;
                float *weight = weights + i * score_step(z), *slope = slopes + i * score_step(z), along = 0;
                for (count d = 0; d < z->D; d++) along += out[at * z->D + d] * outer[i * E + d];
                for (count j = 0; j < end; j += WIDTH) {
                    vec x = power(load(weight + j) * (z->scale * LOG2_E) - norm[at]);
                    store(weight + j, x);
                    store(slope + j, x * (load(slope + j) - along) * z->scale);
                }
                for (count j = 0; j < low_of(z, &b, i); j++) weight[j] = slope[j] = 0;
                for (count j = high_of(z, &b, i); j < end; j++) weight[j] = slope[j] = 0;
            }
            spread(z, &b, weights, outer, value_sums);
            spread(z, &b, slopes, block, key_sums);
            weighed(z, &b, slopes, keys, result);
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
