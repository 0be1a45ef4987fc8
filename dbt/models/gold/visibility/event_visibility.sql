{{ config(materialized='view') }}
{{ visibility(ref('event_visibility_inputs'), ref('visibility_intervals'), [false, true]) }}
