/* Linear layers with LoRA, x (W + scale * B A)^T + bias, and the gated MLP of three of them, forwards and backwards, for
frozen W and bias. Rows are taken a few dozen at once: what A and B need of them is computed while they are in the
processor's cache, and of the MLP what lies between gate and down never leaves it.

Legend: N rows, I and O features in and out, both in whole vectors, R rank, S the same in whole vectors, F width of the
MLP, m rows that are taken at once.
*/

#include "panels.h"
#include "rows.h"

enum { AT_ONCE = 48 };
/* Rows. */

typedef struct {
    count I, O, R;
    float scale;
    const float *weight, *bias, *A, *B; /* [O, I], [O] or none, [R, I], [O, R] */
    float *by_A, *by_B;
} Layer;

typedef struct {
    const Layer *of;
    float *panels;        /* of the sum of the weights, [I / PANEL, O, PANEL] */
    float *scaled, *read; /* scale * B [O, S], A turned [I, S] */
    float *inner, *outer; /* gradients by what A gives [m, S]; what A gives [m, S] */
    float *by_B;          /* turned, and without the scale: [R, O] */
} Back;

INLINE count ranks(const Layer *w) { return whole(w->R); }

static count forward_room(const Layer *w) { return w->I * padded(w->O) + w->R * w->O; }
static count back_room(const Layer *w) {
    return w->O * padded(w->I) + (w->O + w->I + 2 * AT_ONCE) * ranks(w) + w->R * w->O;
}

/* Numbers that a call needs to write to. */
count turnwise_adapted_scratch(const Layer *w) { return most(forward_room(w), back_room(w)); }
count turnwise_mlp_scratch(const Layer w[3]) {
    count room = 2 * AT_ONCE * w->O;
    for (int i = 0; i < 3; i++) room += turnwise_adapted_scratch(w + i);
    return room;
}

/* -- forwards ----------------------------------------------------------------------------------------------------- */

/* The sum of the weights in panels [O / PANEL, I, PANEL]. */
static void summed(const Layer *w, float *panels) {
    count I = w->I, O = w->O, R = w->R;
    float *scaled = panels + I * padded(O); /* [R, O] */
    for (count o = 0; o < O; o++)
        for (count r = 0; r < R; r++) scaled[r * O + o] = w->scale * w->B[o * R + r];
    for (count o = 0; o < O; o += PANEL) {
        float *panel = panels + o * I;
        count wide = least(PANEL, O - o);
        for (count i = 0; i < I; i += WIDTH)
            for (count k = 0; k < wide; k++)
                for (count j = i; j < i + WIDTH; j++) panel[j * PANEL + k] = w->weight[(o + k) * I + j];
        product(1, I, wide, R, w->A, 1, I, scaled + o, O, panel, PANEL);
    }
}

static void through(const Layer *w, count m, const float *x, const float *panels, float *out) {
    if (w->bias)
        for (count i = 0; i < m; i++) memcpy(out + i * w->O, w->bias, w->O * sizeof(float));
    panelled(w->bias != 0, m, w->O, w->I, x, w->I, panels, out, w->O);
}

/* out [N, O] */
void turnwise_adapted(const Layer *w, count N, const float *x, float *scratch, float *out) {
    summed(w, scratch);
    for (count n = 0; n < N; n += AT_ONCE)
        through(w, least(AT_ONCE, N - n), x + n * w->I, scratch, out + n * w->O);
}

/* gate and up [N, F], out [N, O], by the three layers. */
void turnwise_mlp(const Layer w[3], count N, const float *x, float *scratch, float *gate, float *up, float *out) {
    count F = w->O;
    float *inner = scratch, *panels[3];
    scratch += 2 * AT_ONCE * F;
    for (int i = 0; i < 3; i++) {
        summed(w + i, panels[i] = scratch);
        scratch += turnwise_adapted_scratch(w + i);
    }
    for (count n = 0; n < N; n += AT_ONCE) {
        count m = least(AT_ONCE, N - n);
        through(w, m, x + n * w->I, panels[0], gate + n * F);
        through(w + 1, m, x + n * w->I, panels[1], up + n * F);
        gated(m * F, gate + n * F, up + n * F, inner);
        through(w + 2, m, inner, panels[2], out + n * w[2].O);
    }
}

/* -- backwards ---------------------------------------------------------------------------------------------------- */

static Back begun(const Layer *w, int for_x, float *room) {
    count I = w->I, O = w->O, R = w->R, S = ranks(w);
    Back b = {.of = w, .panels = room};
    b.scaled = b.panels + O * padded(I), b.read = b.scaled + O * S, b.inner = b.read + I * S;
    b.outer = b.inner + AT_ONCE * S, b.by_B = b.outer + AT_ONCE * S;
    memset(b.scaled, 0, (O + I) * S * sizeof(float));
    for (count o = 0; o < O; o++)
        for (count r = 0; r < R; r++) b.scaled[o * S + r] = w->scale * w->B[o * R + r];
    for (count r = 0; r < R; r++)
        for (count i = 0; i < I; i++) b.read[i * S + r] = w->A[r * I + i];
    memset(b.by_B, 0, R * O * sizeof(float));
    memset(w->by_A, 0, R * I * sizeof(float));
    for (count i = 0; for_x && i < I; i += PANEL) {
        float *panel = b.panels + i * O;
        count wide = least(PANEL, I - i);
        for (count o = 0; o < O; o++) memcpy(panel + o * PANEL, w->weight + o * I + i, wide * sizeof(float));
        product(1, O, wide, R, b.scaled, S, 1, w->A + i, I, panel, PANEL);
    }
    return b;
}

/* c [R, n] += a [m, S] turned, times b [m, n]. */
static void turned_times(count R, count S, count m, count n, const float *a, const float *b, float *c) {
    count rows = tall(R);
    for (count r = 0; r < R; r += rows) product(1, least(rows, R - r), n, m, a + r, 1, S, b, n, c + r * n, n);
}

/* by_x [m, I] (+)= grad [m, O] times the sum of the weights, where by_x is wanted; and what these rows add to the rest. */
static void back(const Back *b, int add, count m, const float *grad, const float *x, float *by_x) {
    const Layer *w = b->of;
    count S = ranks(w);
    product(0, m, S, w->O, grad, w->O, 1, b->scaled, S, b->inner, S);
    product(0, m, S, w->I, x, w->I, 1, b->read, S, b->outer, S);
    if (by_x) panelled(add, m, w->I, w->O, grad, w->O, b->panels, by_x, w->I);
    turned_times(w->R, S, m, w->I, b->inner, x, w->by_A);
    turned_times(w->R, S, m, w->O, b->outer, grad, b->by_B);
}

static void ended(const Back *b) {
    const Layer *w = b->of;
    for (count o = 0; o < w->O; o++)
        for (count r = 0; r < w->R; r++) w->by_B[o * w->R + r] = w->scale * b->by_B[r * w->O + o];
}

/* by_x [N, I], if it is wanted; by_A and by_B of the layer. */
void turnwise_adapted_back(const Layer *w, count N, const float *grad, const float *x, float *scratch, float *by_x) {
    Back b = begun(w, by_x != 0, scratch);
    for (count n = 0; n < N; n += AT_ONCE)
        back(&b, 0, least(AT_ONCE, N - n), grad + n * w->O, x + n * w->I, by_x ? by_x + n * w->I : 0);
    ended(&b);
}

/* The same of the three layers. */
void turnwise_mlp_back(const Layer w[3], count N, const float *grad, const float *x, const float *gate, const float *up,
                       float *scratch, float *by_x) {
    count F = w->O;
    float *inner = scratch, *slope = inner + AT_ONCE * F;
    Back b[3];
    scratch = slope + AT_ONCE * F;
    for (int i = 0; i < 3; i++) {
        b[i] = begun(w + i, i == 2 || by_x, scratch);
        scratch += turnwise_adapted_scratch(w + i);
    }
    for (count n = 0; n < N; n += AT_ONCE) {
        count m = least(AT_ONCE, N - n);
        const float *here = x + n * w->I;
        float *to = by_x ? by_x + n * w->I : 0;
        gated(m * F, gate + n * F, up + n * F, inner);
        back(b + 2, 0, m, grad + n * w[2].O, inner, slope);
        gated_back(m * F, slope, gate + n * F, up + n * F, inner, slope); /* into their place */
        back(b, 0, m, inner, here, to);
        back(b + 1, 1, m, slope, here, to);
    }
    for (int i = 0; i < 3; i++) ended(b + i);
}
