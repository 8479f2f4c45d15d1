# Groups of bars with their spread, one colour a subject. Set by the caller: out data names colours title ylabel
set terminal svg size 800,480 font "sans,13" background "white"
set output out
set title title
set ylabel ylabel
set yrange [0:*]
set grid y
set key outside right top
set style fill solid 0.85 noborder
set ytics nomirror
set xtics nomirror scale 0
n = words(names)
w = 0.8 / n
set offsets 0.5, 0.5, 0, 0
plot for [i=1:n] data index i-1 using ($1 + (i - 0.5) * w - 0.4):2:(0.9 * w) with boxes lc rgb word(colours, i) title word(names, i), \
     for [i=1:n] data index i-1 using ($1 + (i - 0.5) * w - 0.4):2:3 with yerrorbars lc rgb "#333333" pt 0 ps 0 notitle, \
     data index 0 using 1:(0):xtic(4) with lines lw 0 notitle
