# One line a subject with its spread, over what is varied. Set by the caller: out data names colours title xlabel ylabel logy
set terminal svg size 800,480 font "sans,13" background "white"
set output out
set title title
set xlabel xlabel
set ylabel ylabel
set logscale x 2
if (logy ne "") { set logscale y; } else { set yrange [0:*]; }
set grid
set key outside right top
set xtics nomirror
set ytics nomirror
set offsets graph 0.03, graph 0.03, 0, 0
plot for [i=1:words(names)] data index i-1 using 1:2:3:xtic(4) with yerrorlines \
     lw 2 pt 7 ps 0.6 lc rgb word(colours, i) title word(names, i)
