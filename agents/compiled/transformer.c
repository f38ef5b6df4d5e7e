/* Small transformers of Llama's kind, whole: from the embeddings of a flat row of new tokens to the logits of some.

Tokens are of many sessions: each has its row of the cache and its position there, and attends to what its row holds up
to itself. Tokens of one session that follow one another in the flat row follow one another in the cache. Rows are taken
a few hundred at once, through everything but the last product, so that what they leave behind stays in the cache of the
processor.

Invariant: a token's numbers do not depend on the tokens of other sessions.

Legend: T tokens, N of them whose logits are wanted, W hidden width, F width of the MLP, H heads, G key heads, R heads per
key head, D width of a head, V vocabulary, C positions of a cache row.
*/

#include "panels.h"
#include "rows.h"
#include "scores.h"

enum { CHUNK = 192, FEW = 6 };
/* Rows that are taken through a layer at once; queries of a session that are worth turning its keys for. */

typedef long long place;

typedef struct {
    const float *panels, *bias; /* [O / PANEL, I, PANEL], [O] or none */
    count I, O;
} Weights;

typedef struct {
    const float *weight;
    float eps;
} Norm;

typedef struct {
    Norm before, after, heads; /* heads: [H + G, D], or none */
    Weights read, write, open, close; /* queries, keys and values; output; gate and up; down */
    float *keys, *values; /* [rows, G, C, D] */
    float scale;
    count window;
} Layer;

typedef struct {
    count T, N, W, F, H, G, D, C, layers;
    const place *row, *pos, *keep; /* [T], [T], [N] ascending or none: all */
    const float *cos, *sin; /* [positions, D] */
    Norm norm;
    Weights head;
} Body;

INLINE count wider(const Body *b) { return padded(most(2 * b->F, most(b->W, (b->H + 2 * b->G) * b->D))); }

/* The columns of a panel. */
count turnwise_panel(void) { return PANEL; }

/* Numbers that a call needs to write to, where no row of the cache is longer than ``length``. */
count turnwise_body_scratch(const Body *b, count length) {
    count rows = most(ROWS, b->H / b->G), step = length + 2 * WIDTH;
    return CHUNK * (whole(b->W) + wider(b) + whole(b->H * b->D) + whole(b->F) + padded(b->W)) + rows * step +
           whole(b->D) * step + 2 * rows * whole(b->D) + 8 * PANEL;
}

/* c [m, padded O] = a [m, I] times the weights, plus the bias. */
static void times(count m, const Weights *w, const float *a, count a_step, float *c, count c_step) {
    panelled(0, m, padded(w->O), w->I, a, a_step, w->panels, c, c_step);
    if (w->bias)
        for (count i = 0; i < m; i++)
            for (count o = 0; o < w->O; o++) c[i * c_step + o] += w->bias[o];
}

/* Four dot products of a query with keys that follow one another. */
INLINE void four(const float *q, const float *k, count D, float *to) {
    vec sum[4] = {all(0), all(0), all(0), all(0)};
    count d = 0;
    for (; d + WIDTH <= D; d += WIDTH) {
        vec x = load(q + d);
        for (int j = 0; j < 4; j++) sum[j] += x * load(k + j * D + d);
    }
    for (int j = 0; j < 4; j++) {
        float rest = total(sum[j]);
        for (count e = d; e < D; e++) rest += q[e] * k[j * D + e];
        to[j] = rest;
    }
}

typedef struct {
    float *scores, *columns, *block, *result;
    count step;
} Room;

/* to [R, D] = what n queries [n, D] of the same place read of keys and values [length, D]. */
static void alone(const Body *b, const Layer *l, Room *room, const float *query, const float *keys, const float *values,
                  count length, float *to) {
    count R = b->H / b->G, from = most(0, length - l->window), n = length - from, D = b->D;
    keys += from * D, values += from * D;
    float sums[R], norm;
    for (count r = 0; r < R; r++) {
        float *score = room->scores + r * room->step;
        count j = 0;
        for (; j + 4 <= n; j += 4) four(query + r * D, keys + j * D, D, score + j);
        for (; j < n; j++) score[j] = dot(query + r * D, keys + j * D, D);
        sums[r] = softened(score, 0, n, n, l->scale * LOG2_E, &norm);
    }
    if (D % WIDTH == 0)
        product(0, R, D, n, room->scores, room->step, 1, values, D, to, D);
    else {
        memset(to, 0, R * D * sizeof(float));
        for (count r = 0; r < R; r++)
            for (count j = 0; j < n; j++)
                for (count d = 0; d < D; d++) to[r * D + d] += room->scores[r * room->step + j] * values[j * D + d];
    }
    for (count r = 0; r < R; r++)
        for (count d = 0; d < D; d++) to[r * D + d] /= sums[r];
}

/* got [n, H D] = what n tokens read that follow one another from position ``past`` on. */
static void together(const Body *b, const Layer *l, Room *room, const float *read, count step, const float *keys,
                     const float *values, count past, count n, float *got, count got_step) {
    count R = b->H / b->G, D = b->D, tokens = most(1, ROWS / R), length = past + n;
    count first = most(0, past + 1 - l->window) / WIDTH * WIDTH; /* the first key that any of them sees, or one before */
    for (count t = first; t < length; t++)
        for (count d = 0; d < D; d++) room->columns[d * room->step + t] = keys[t * D + d];
    for (count t0 = 0; t0 < n; t0 += tokens) {
        count m = least(tokens, n - t0), rows = m * R;
        count from = most(0, past + t0 + 1 - l->window) / WIDTH * WIDTH, to = past + t0 + m;
        for (count i = 0; i < rows; i++)
            memcpy(room->block + i * D, read + (t0 + i / R) * step + i % R * D, D * sizeof(float));
        product(0, rows, to - from, D, room->block, D, 1, room->columns + from, room->step, room->scores, room->step);
        float sums[rows], norm;
        for (count i = 0; i < rows; i++) {
            count high = past + t0 + i / R + 1 - from;
            sums[i] = softened(room->scores + i * room->step, most(0, high - l->window), high, to - from,
                               l->scale * LOG2_E, &norm);
        }
        memset(room->result, 0, rows * D * sizeof(float));
        for (count k = from; k < to; k += DEEP)
            product(1, rows, D, least(DEEP, to - k), room->scores + k - from, room->step, 1, values + k * D, D,
                    room->result, D);
        for (count i = 0; i < rows; i++)
            for (count d = 0; d < D; d++)
                got[(t0 + i / R) * got_step + i % R * D + d] = room->result[i * D + d] / sums[i];
    }
}

/* Whether the token after t follows it in its row of the cache. */
INLINE int goes_on(const Body *b, count t) {
    return t + 1 < b->T && b->row[t + 1] == b->row[t] && b->pos[t + 1] == b->pos[t] + 1;
}

/* Whether token t is one of many that follow one another, wherever the chunks are cut. */
static int of_many(const Body *b, count t) {
    count length = 1, many = (FEW + b->H / b->G - 1) / (b->H / b->G);
    for (count i = t; length < many && i > 0 && goes_on(b, i - 1); i--) length++;
    for (count i = t; length < many && goes_on(b, i); i++) length++;
    return length >= many;
}

/* got [n, H D] of the tokens from t0 on; ``read`` has their queries, keys and values. */
static void attended(const Body *b, const Layer *l, Room *room, count t0, count n, float *read, count step, float *got,
                     count got_step) {
    count R = b->H / b->G, D = b->D;
    for (count i = 0; i < n; i++) {
        float *x = read + i * step;
        count at = b->row[t0 + i] * b->G, pos = b->pos[t0 + i];
        for (count h = 0; h < b->H + b->G; h++) {
            if (l->heads.weight) normed(D, l->heads.eps, x + h * D, l->heads.weight + h * D, x + h * D);
            turned(0, D, x + h * D, b->cos + pos * D, b->sin + pos * D, x + h * D);
        }
        for (count g = 0; g < b->G; g++) {
            memcpy(l->keys + ((at + g) * b->C + pos) * D, x + (b->H + g) * D, D * sizeof(float));
            memcpy(l->values + ((at + g) * b->C + pos) * D, x + (b->H + b->G + g) * D, D * sizeof(float));
        }
    }
    for (count i = 0, run; i < n; i += run) {
        for (run = 1; i + run < n && goes_on(b, t0 + i + run - 1); run++) {}
        int many = D % WIDTH == 0 && of_many(b, t0 + i);
        for (count g = 0; g < b->G; g++) {
            count at = (b->row[t0 + i] * b->G + g) * b->C * D, pos = b->pos[t0 + i];
            const float *keys = l->keys + at, *values = l->values + at;
            if (many)
                together(b, l, room, read + i * step + g * R * D, step, keys, values, pos, run,
                         got + i * got_step + g * R * D, got_step);
            else
                for (count j = 0; j < run; j++)
                    alone(b, l, room, read + (i + j) * step + g * R * D, keys, values, pos + j + 1,
                          got + (i + j) * got_step + g * R * D);
        }
    }
}

/* logits [N, padded V] from x [T, W], the embeddings, which are overwritten. */
void turnwise_body(const Body *b, const Layer *layers, count length, float *x, float *scratch, float *logits) {
    count W = b->W, rows = most(ROWS, b->H / b->G), wide = wider(b);
    float *x_normed = scratch, *opened = x_normed + CHUNK * whole(W), *got = opened + CHUNK * wide,
          *inner = got + CHUNK * whole(b->H * b->D), *written = inner + CHUNK * whole(b->F);
    Room room = {.step = length + 2 * WIDTH};
    room.scores = written + CHUNK * padded(W), room.columns = room.scores + rows * room.step;
    room.block = room.columns + whole(b->D) * room.step, room.result = room.block + rows * whole(b->D);
    count kept = 0; /* rows of the last layer that were wanted so far; they are moved to the front of x */
    for (count i = 0; i < b->layers; i++) {
        const Layer *l = layers + i;
        int last = i + 1 == b->layers && b->keep;
        for (count t0 = 0; t0 < b->T; t0 += CHUNK) {
            count n = least(CHUNK, b->T - t0), got_step = whole(b->H * b->D);
            float *row = x + t0 * W;
            for (count t = 0; t < n; t++)
                normed(W, l->before.eps, row + t * W, l->before.weight, x_normed + t * whole(W));
            times(n, &l->read, x_normed, whole(W), opened, wide);
            attended(b, l, &room, t0, n, opened, wide, got, got_step);
            if (last) {
                count first = kept;
                for (; kept < b->N && b->keep[kept] < t0 + n; kept++) {
                    memmove(x + kept * W, x + b->keep[kept] * W, W * sizeof(float));
                    memmove(got + (kept - first) * got_step, got + (b->keep[kept] - t0) * got_step,
                            got_step * sizeof(float));
                }
                row = x + first * W, n = kept - first;
            }
            times(n, &l->write, got, got_step, written, padded(W));
            for (count t = 0; t < n; t++) {
                for (count d = 0; d < W; d++) row[t * W + d] += written[t * padded(W) + d];
                normed(W, l->after.eps, row + t * W, l->after.weight, x_normed + t * whole(W));
            }
            times(n, &l->open, x_normed, whole(W), opened, wide);
            for (count t = 0; t < n; t++)
                gated(b->F, opened + t * wide, opened + t * wide + b->F, inner + t * whole(b->F));
            times(n, &l->close, inner, whole(b->F), written, padded(W));
            for (count t = 0; t < n; t++)
                for (count d = 0; d < W; d++) row[t * W + d] += written[t * padded(W) + d];
        }
    }
    for (count i = 0; i < b->N; i += CHUNK) {
        count n = least(CHUNK, b->N - i);
        for (count t = 0; t < n; t++) normed(W, b->norm.eps, x + (i + t) * W, b->norm.weight, x_normed + t * whole(W));
        times(n, &b->head, x_normed, whole(W), logits + i * padded(b->head.O), padded(b->head.O));
    }
}
