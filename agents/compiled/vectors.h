/* Vectors of whatever width the processor has. Written for no processor: the compiler makes the instructions. */

#pragma once

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
INLINE vec smaller(vec a, vec b) { return -larger(-a, -b); }
INLINE float total(vec x) {
    float sum = 0;
    for (int j = 0; j < WIDTH; j++) sum += x[j];
    return sum;
}
INLINE float highest(vec x) {
    float top = x[0];
    for (int j = 1; j < WIDTH; j++) top = x[j] > top ? x[j] : top;
    return top;
}
INLINE float dot(const float *a, const float *b, count n) {
    vec sums = all(0);
    count i = 0;
    for (; i + WIDTH <= n; i += WIDTH) sums += load(a + i) * load(b + i);
    float sum = total(sums);
    for (; i < n; i++) sum += a[i] * b[i];
    return sum;
}
INLINE count least(count a, count b) { return a < b ? a : b; }
INLINE count most(count a, count b) { return a > b ? a : b; }
INLINE count whole(count n) { return (n + WIDTH - 1) / WIDTH * WIDTH; }

#define LOG2_E 1.44269504f

/* 2 to the power of x, for x up to 126; exactly 0 where it would be no normal number, and NaN where x is. */
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
    return (vec)(((bits)y + ((bits)integer << 23)) & ~(bits)(x <= all(-126.0f)));
}
