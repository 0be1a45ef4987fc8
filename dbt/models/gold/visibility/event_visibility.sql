{{ config(materialized='view') }}
{{ visibility(ref('event_circumstances'), ref('visibility_intervals'), [false, true]) }}
