/* What a transformer does to each row by itself: gates, norms and rotary positions. Widths are any. */

#pragma once

#include "vectors.h"

/* Does what is given for each vector of n numbers, from number i on; k is WIDTH, and less for what is left over. */
#define EACH(n, ...)                                                                                                   \
    {                                                                                                                  \
        count i = 0;                                                                                                   \
        for (; i + WIDTH <= (n); i += WIDTH) {                                                                         \
            const count k = WIDTH;                                                                                     \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
        if (i < (n)) {                                                                                                 \
            const count k = (n) - i;                                                                                   \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

INLINE vec some(const float *from, count k) {
    if (k == WIDTH) return load(from);
    vec x = all(0);
    memcpy(&x, from, 4 * k);
    return x;
}

INLINE void put(float *to, vec x, count k) {
    if (k == WIDTH) store(to, x);
    else memcpy(to, &x, 4 * k);
}

INLINE vec sigmoid(vec x) { return 1.0f / (1.0f + power(smaller(x * -LOG2_E, all(126.0f)))); }

/* silu(gate) * up */
INLINE void gated(count n, const float *gate, const float *up, float *out) {
    EACH(n, {
        vec x = some(gate + i, k);
        put(out + i, x * sigmoid(x) * some(up + i, k), k);
    })
}

/* Its gradients, of which one may take the place of the gradient that is given. */
INLINE void gated_back(count n, const float *grad, const float *gate, const float *up, float *by_gate, float *by_up) {
    EACH(n, {
        vec x = some(gate + i, k), s = sigmoid(x), given = some(grad + i, k);
        put(by_gate + i, given * some(up + i, k) * s * (1.0f + x * (1.0f - s)), k);
        put(by_up + i, given * x * s, k);
    })
}

/* x [D] over its root mean square, times the weight; returns one over that root. */
INLINE float normed(count D, float eps, const float *x, const float *weight, float *out) {
    vec squares = all(0);
    EACH(D, {
        vec here = some(x + i, k);
        squares += here * here;
    })
    float by = 1.0f / sqrtf(total(squares) / D + eps);
    EACH(D, put(out + i, some(x + i, k) * by * some(weight + i, k), k);)
    return by;
}

/* Turns the two halves of x [D] against each other, which out may be; backwards it is the gradient of that. */
INLINE void turned(const int back, count D, const float *x, const float *cosine, const float *sine, float *out) {
    count half = D / 2;
    EACH(half, {
        vec low = some(x + i, k), high = some(x + half + i, k);
        vec low_sine = some(sine + i, k), high_sine = some(sine + half + i, k);
        put(out + i, low * some(cosine + i, k) + high * (back ? high_sine : -low_sine), k);
        put(out + half + i, high * some(cosine + half + i, k) + low * (back ? -low_sine : high_sine), k);
    })
}
