/* Products with weights that lie in panels, as many columns as a tile has: [columns / PANEL, rows, PANEL]. */

#pragma once

#include "products.h"

enum { DEEPER = 256 };
/* Rows of a panel that are used at once. */

INLINE count padded(count columns) { return (columns + PANEL - 1) / PANEL * PANEL; }

/* C (+)= A B for B in panels. */
static void panelled(int add, count m, count n, count inner, const float *a, count a_i, const float *panels, float *c,
                     count c_i) {
    count vectors = whole(n) / WIDTH, rows = tall(m);
    for (count j = 0; j < vectors; j += ACROSS)
        for (count p = 0; p < inner; p += DEEPER)
            for (count i = 0; i < m; i += rows)
                (add || p ? added : set)(least(rows, m - i), least(ACROSS, vectors - j), least(DEEPER, inner - p),
                                         a + i * a_i + p, a_i, 1, panels + (j * inner + p * ACROSS) * WIDTH, PANEL,
                                         c + i * c_i + j * WIDTH, c_i);
}
