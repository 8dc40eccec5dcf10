use super::*;

fn lines(points: Points) -> Chart {
    let lines = vec![Line::numbered(0, "actors", points)];
    Chart::lines("Score", "points", 100.0, lines).with(vec![("human", 10.0)], Scale::Linear)
}

/// The elements that a chart consists of.
fn drawn(chart: &Chart) -> Vec<String> {
    chart.document().lines().skip(3).map(str::to_owned).collect()
}

/// The elements in the colour of the first line.
fn coloured(elements: &[String], kind: &str) -> Vec<String> {
    elements.iter().filter(|line| line.starts_with(kind) && line.contains("#0072b2")).cloned().collect()
}

/// The number of an attribute.
fn number(element: &str, attribute: &str) -> f64 {
    let rest = &element[element.find(attribute).unwrap() + attribute.len() + 2..];
    rest[..rest.find(['"', ' ']).unwrap()].trim_start_matches('M').parse().unwrap()
}

#[test]
fn line_spans_the_chart_and_breaks_where_values_are_missing() {
    let elements = drawn(&lines(vec![(0.0, 0.0), (50.0, 5.0), (60.0, f64::NAN), (80.0, 7.0), (100.0, 10.0)]));
    let paths = coloured(&elements, "<path");
    // The last one is its sample in the legend.
    assert_eq!(paths.len(), 3);
    assert_eq!(number(&paths[0], " d"), LEFT);
    assert_eq!(number(&paths[1], " d"), LEFT + 0.8 * (SIZE.0 - LEFT - RIGHT));
    for text in ["Score", "points", "actors", "human", "100", "emulator frames"] {
        assert!(elements.iter().any(|element| element.contains(&format!(">{text}<"))), "{text}: {elements:?}");
    }
}

#[test]
fn single_value_is_a_dot_and_missing_values_are_nothing() {
    let elements = drawn(&lines(vec![(50.0, 3.0)]));
    assert_eq!((coloured(&elements, "<path").len(), coloured(&elements, "<rect").len()), (1, 1));
    assert!(lines(vec![(50.0, f64::NAN)]).is_empty() && lines(vec![]).is_empty());
}

#[test]
fn band_is_shaded_and_widens_the_axis() {
    let mut chart = lines(vec![(0.0, 5.0), (100.0, 5.0)]);
    if let Content::Lines { lines, levels, .. } = &mut chart.content {
        lines[0].band = vec![(0.0, -200.0, 6.0), (100.0, 4.0, 300.0)];
        levels.clear();
    }
    let elements = drawn(&chart);
    assert_eq!(elements.iter().filter(|element| element.contains("fill-opacity=\"0.2\"")).count(), 1);
    assert!(elements.iter().any(|element| element.contains(">200<")), "{elements:?}");
}

#[test]
fn long_legends_take_more_rows_and_repeated_colours_are_dashed() {
    let line = |i| Line::numbered(i, format!("agent.loss.return = number {i}"), vec![(0.0, 1.0), (100.0, 2.0)]);
    let chart = Chart::lines("Score", "points", 100.0, (0..8).map(line).collect());
    assert_eq!(chart.height(), SIZE.1 + 7.0 * LEGEND_ROW);
    let elements = drawn(&chart);
    assert_eq!(elements.iter().filter(|element| element.contains("stroke-dasharray")).count(), 2);
    let names: Vec<f64> =
        elements.iter().filter(|one| one.contains(">agent.loss")).map(|one| number(one, " y")).collect();
    assert!(names.windows(2).all(|pair| pair[1] - pair[0] == LEGEND_ROW), "{names:?}");
    assert!(names.iter().all(|y| *y < TOP + 7.0 * LEGEND_ROW));
}

#[test]
fn marks_are_vertical_lines_with_labels_that_stay_inside() {
    let mark = |x: f64| Mark { x, label: format!("changed at {x}") };
    let marks = vec![mark(25.0), mark(75.0)];
    let elements = drawn(&Chart { marks, ..lines(vec![(0.0, 0.0), (100.0, 10.0)]) });
    let (width, height) = (SIZE.0 - LEFT - RIGHT, SIZE.1 - TOP - BOTTOM);
    for (x, anchor, gap, row) in [(25.0, "start", 3.0, 0.0), (75.0, "end", -3.0, 1.0)] {
        let place = LEFT + x / 100.0 * width;
        let line = format!("<path d=\"M{place} {TOP}l0 {height}\"");
        assert!(elements.iter().any(|one| one.starts_with(&line) && one.contains("stroke-dasharray")), "{elements:?}");
        let label = elements.iter().find(|one| one.contains(&format!(">changed at {x}<"))).unwrap();
        assert!(label.contains(&format!("text-anchor=\"{anchor}\"")), "{label}");
        assert_eq!((number(label, " x"), number(label, " y")), (place + gap, TOP + 8.0 + row * MARK_ROW));
    }
}

#[test]
fn close_levels_share_a_label() {
    let labels = |random: f64| {
        let levels = vec![("human", 10.0), ("random", random)];
        let elements = drawn(&lines(vec![(0.0, 0.0), (100.0, 100.0)]).with(levels, Scale::Linear));
        let is_label = |one: &&String| one.contains(">human") || one.contains(">random<");
        elements.iter().filter(is_label).map(|one| one.contains(">human, random<")).collect::<Vec<_>>()
    };
    assert_eq!(labels(-50.0), [false, false]);
    assert_eq!(labels(8.0), [true]);
}

#[test]
fn shares_fill_the_chart_and_the_largest_is_opaque() {
    let columns = vec![(0.0, vec![0.25, 0.25]), (50.0, vec![0.0, 1.0])];
    let content = Content::Shares { columns, end: 100.0 };
    let elements = drawn(&Chart { content, ..lines(vec![]) });
    let rectangles: Vec<&String> = elements.iter().filter(|element| element.starts_with("<rect")).collect();
    let area: f64 = rectangles.iter().map(|one| number(one, "width") * number(one, "height")).sum();
    assert!((area - (SIZE.0 - LEFT - RIGHT) * (SIZE.1 - TOP - BOTTOM)).abs() < 1e-6);
    let opacity = |one: &str| if one.contains("opacity") { number(one, "fill-opacity") } else { 1.0 };
    let opacities: Vec<f64> = rectangles.iter().map(|rectangle| opacity(rectangle)).collect();
    assert_eq!(opacities, [0.5, 0.5, 0.0, 1.0]);
}

#[test]
fn policy_colours_go_from_blue_to_orange() {
    assert_eq!(policy_colour(0, 16), Colour::Rgb([72, 84, 228]));
    assert_eq!(policy_colour(15, 16), Colour::Rgb([252, 166, 54]));
    assert_eq!(policy_colour(0, 1), Colour::Rgb([72, 84, 228]));
}
